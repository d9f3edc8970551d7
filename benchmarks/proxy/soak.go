package main

// Clients of every kind for a long time, some of which vanish. Says every few seconds, as a line of JSON, how requests ended
// since the last line; what was not answered rightly is told one by one, with its time.

import (
	"encoding/json"
	"errors"
	"flag"
	"math/rand"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// sayEvery is how often a line is written.
const sayEvery = 5 * time.Second

// thinkTime is the longest pause of a client: the machine has other users, and a soak is about time, not speed.
const thinkTime = 200 * time.Millisecond

var kinds = []struct {
	weight int
	shape
}{
	{40, shape{}},
	{10, shape{pace: 20_000}},
	{20, shape{stream: true, chunks: 30, pace: 3_000}},
	{5, shape{stream: true, chunks: 100}},
	{15, shape{items: 1, size: 1024}},
	{5, shape{items: 4, size: 4096}},
	{5, shape{items: 1, size: 200_000}},
	{5, shape{items: 2, size: 1024, stream: true, chunks: 30, pace: 3_000}},
	{1, shape{items: 1, size: 1_000_000}},
}

type trouble struct {
	Time float64 `json:"time"`
	How  string  `json:"how"`
	Text string  `json:"text"`
}

type soakLine struct {
	Answered int            `json:"answered"`
	Vanished int            `json:"vanished"`
	Versions map[string]int `json:"versions"`
	Troubles []trouble      `json:"troubles"`
}

type soak struct {
	address  string
	vanish   float64
	next     atomic.Int64
	deadline time.Time
	mutex    sync.Mutex
	line     soakLine
}

func soakMain(args []string) {
	flags := flag.NewFlagSet("soak", flag.ExitOnError)
	s := &soak{}
	flags.StringVar(&s.address, "address", "", "what to ask")
	flags.Float64Var(&s.vanish, "vanish", 0.1, "share of requests whose client goes away")
	clients := flags.Int("c", 16, "clients")
	limit := flags.Duration("d", time.Minute, "")
	flags.Parse(args)
	loopbackOnly(s.address)
	s.next.Store(time.Now().UnixNano() / 1e6 % 1e10 * 1000)
	s.deadline = time.Now().Add(*limit)
	var all sync.WaitGroup
	for range *clients {
		all.Add(1)
		go func() {
			defer all.Done()
			s.client()
		}()
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	for ended := false; !ended; s.say() {
		select {
		case <-done:
			ended = true
		case <-time.After(sayEvery):
		}
	}
}

func (s *soak) client() {
	c := &client{address: s.address}
	defer c.close()
	requests := make([]*request, len(kinds))
	for i, kind := range kinds {
		requests[i] = newRequest(kind.shape, s.address)
	}
	var out answer
	for time.Now().Before(s.deadline) {
		r := requests[pick()]
		r.stamp(s.next.Add(1))
		if rand.Float64() < s.vanish {
			s.goAway(c, r)
		} else {
			s.note(c.ask(r, &out), out.version)
		}
		time.Sleep(time.Duration(rand.Int63n(int64(thinkTime))))
	}
}

func pick() int {
	sum := 0
	for _, kind := range kinds {
		sum += kind.weight
	}
	left := rand.Intn(sum)
	for i, kind := range kinds {
		if left -= kind.weight; left < 0 {
			return i
		}
	}
	return 0
}

// goAway sends some or all of a request, reads some of the answer or nothing, and closes.
func (s *soak) goAway(c *client, r *request) {
	defer c.close()
	if c.open() != nil {
		return
	}
	c.connection.SetDeadline(time.Now().Add(patience))
	data := r.raw
	if rand.Intn(3) == 0 {
		data = data[:rand.Intn(len(data))]
	}
	c.connection.Write(data)
	if len(data) == len(r.raw) && rand.Intn(2) == 0 {
		c.connection.SetReadDeadline(time.Now().Add(time.Duration(rand.Int63n(int64(50 * time.Millisecond)))))
		c.reader.Read(c.buffer[:1+rand.Intn(2000)])
	}
	s.mutex.Lock()
	s.line.Vanished++
	s.mutex.Unlock()
}

func (s *soak) note(err error, version string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if err == nil {
		s.line.Answered++
		if s.line.Versions == nil {
			s.line.Versions = map[string]int{}
		}
		s.line.Versions[version]++
		return
	}
	how := "refused"
	for each, name := range map[error]string{errWrong: "wrong", errBrokenOff: "broken off", errLost: "lost"} {
		if errors.Is(err, each) {
			how = name
		}
	}
	text := err.Error()
	// a stream breaks off within a millisecond of its engine's death, so that a rounded time could come before it
	now := float64(time.Now().UnixMicro()) / 1e6
	s.line.Troubles = append(s.line.Troubles, trouble{now, how, text[:min(len(text), 300)]})
}

func (s *soak) say() {
	s.mutex.Lock()
	line := s.line
	s.line = soakLine{}
	s.mutex.Unlock()
	json.NewEncoder(os.Stdout).Encode(line)
}
