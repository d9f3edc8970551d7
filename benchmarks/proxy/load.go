package main

// A closed loop of workers against one address, for a number of requests or a time, whichever ends first. Before it, each
// worker's first requests are held by the engines at the same time, so that every connection a proxy will need is open; the
// measurement begins after them. Prints one line of JSON.

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

type engineStatistics struct {
	Connections, Requests, Pictures, Reported int64
}

func (s *engineStatistics) read(body []byte) { json.Unmarshal(body, s) }

func (s *engineStatistics) add(other engineStatistics, sign int64) {
	s.Connections += sign * other.Connections
	s.Requests += sign * other.Requests
	s.Pictures += sign * other.Pictures
	s.Reported += sign * other.Reported
}

type loader struct {
	shape
	address, against string
	pids             []int
	engines          []string
	next, left       atomic.Int64
	deadline         time.Time
	mutex            sync.Mutex
	failures         map[string]int
	sample           string
}

// worker has a connection to the proxy and, where latencies are compared, one past it.
type worker struct {
	client, direct client
	request, past  *request
	answer         answer
	totals, firsts []int64
	base, delays   []int64
	events         int64
}

func loadMain(args []string) {
	flags := flag.NewFlagSet("load", flag.ExitOnError)
	l := &loader{failures: map[string]int{}}
	l.flags(flags)
	flags.StringVar(&l.address, "address", "", "what to ask")
	flags.StringVar(&l.against, "against", "", "an engine: every other request goes there, to compare latencies")
	connections := flags.Int("c", 16, "workers")
	count := flags.Int64("n", 1000, "requests")
	limit := flags.Duration("d", 5*time.Second, "no request begins later")
	pids := flags.String("pids", "", "processes whose CPU time counts, with their children")
	engines := flags.String("engines", "", "engines whose connections count")
	flags.Parse(args)
	loopbackOnly(l.address)
	for _, text := range strings.Split(*pids, ",") {
		if pid, err := strconv.Atoi(text); err == nil {
			l.pids = append(l.pids, family(pid)...)
		}
	}
	if *engines != "" {
		l.engines = strings.Split(*engines, ",")
	}
	l.next.Store(time.Now().UnixNano() / 1e6 % 1e10 * 1000)
	workers := make([]*worker, *connections)
	for i := range workers {
		workers[i] = l.worker()
	}
	resetPeak(l.pids)
	l.warm(workers)
	before, cpu, began := l.statistics(), cpuNanoseconds(l.pids), time.Now()
	l.left.Store(*count)
	l.deadline = began.Add(*limit)
	each(workers, l.run)
	elapsed := time.Since(began)
	cpu = cpuNanoseconds(l.pids) - cpu
	after := l.statistics()
	after.add(before, -1)
	json.NewEncoder(os.Stdout).Encode(l.report(workers, elapsed, cpu, after))
}

func (l *loader) worker() *worker {
	w := &worker{client: client{address: l.address}, request: newRequest(l.shape, l.address)}
	if l.against != "" {
		w.direct, w.past = client{address: l.against}, newRequest(l.shape, l.against)
	}
	return w
}

// warm lets every worker ask once, held; then a few times as it will.
func (l *loader) warm(workers []*worker) {
	for _, wait := range []bool{true, false, false} {
		s := l.shape
		s.hold = wait || s.hold
		s.chunks = min(s.chunks, 2)
		if s.stream && wait {
			s.pace = holdMicroseconds
		}
		each(workers, func(w *worker) {
			r := newRequest(s, l.address)
			r.stamp(l.next.Add(1))
			if err := w.client.ask(r, &w.answer); err != nil {
				l.failed(err)
			}
		})
	}
}

func each(workers []*worker, do func(*worker)) {
	var all sync.WaitGroup
	for _, w := range workers {
		all.Add(1)
		go func() {
			defer all.Done()
			do(w)
		}()
	}
	all.Wait()
}

func (l *loader) run(w *worker) {
	for l.left.Add(-1) >= 0 && time.Now().Before(l.deadline) {
		w.request.stamp(l.next.Add(1))
		if err := w.client.ask(w.request, &w.answer); err != nil {
			l.failed(err)
			time.Sleep(5 * time.Millisecond)
			continue
		}
		w.totals, w.firsts = append(w.totals, w.answer.total), append(w.firsts, w.answer.first)
		w.delays = append(w.delays, w.answer.delays...)
		w.events += w.answer.events
		if w.past != nil {
			w.past.stamp(l.next.Add(1))
			if err := w.direct.ask(w.past, &w.answer); err != nil {
				l.failed(err)
				continue
			}
			w.base = append(w.base, w.answer.total)
		}
	}
}

func (l *loader) failed(err error) {
	text := err.Error()
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.sample == "" {
		l.sample = text
	}
	l.failures[fmt.Sprintf("%.40s", text)]++
}

func (l *loader) statistics() (sum engineStatistics) {
	for _, address := range l.engines {
		sum.add(statistics(address), 1)
	}
	return
}

func (l *loader) report(workers []*worker, elapsed time.Duration, cpu int64, engines engineStatistics) map[string]any {
	var totals, firsts, base, delays []int64
	var events int64
	for _, w := range workers {
		totals, firsts = append(totals, w.totals...), append(firsts, w.firsts...)
		base, delays = append(base, w.base...), append(delays, w.delays...)
		events += w.events
	}
	failures := 0
	for _, count := range l.failures {
		failures += count
	}
	answered := float64(len(totals))
	said := map[string]any{
		"answered": answered, "errors": failures, "seconds": elapsed.Seconds(), "rate": answered / elapsed.Seconds(),
		"p50": milliseconds(totals, .5), "p99": milliseconds(totals, .99),
		"first50": milliseconds(firsts, .5), "first99": milliseconds(firsts, .99),
	}
	if l.sample != "" {
		said["sample"] = l.sample
	}
	if answered == 0 {
		return said
	}
	if len(delays) > 0 {
		said["delay50"], said["delay99"] = milliseconds(delays, .5), milliseconds(delays, .99)
	}
	if len(base) > 0 {
		said["added50"] = milliseconds(totals, .5) - milliseconds(base, .5)
	}
	if len(l.engines) > 0 && l.items > 0 {
		said["rewritten"] = float64(engines.Reported) / answered / float64(l.items)
	}
	if len(l.engines) > 0 {
		said["opened"] = float64(engines.Connections) / answered
	}
	if len(l.pids) > 0 {
		said["cpu"] = float64(cpu) / answered / 1e3
		said["peak"], said["memory"] = memoryMB(l.pids, "VmHWM"), memoryMB(l.pids, "VmRSS")
		if events > 0 {
			said["cpu_event"] = float64(cpu) / float64(events) / 1e3
		}
	}
	return said
}

func milliseconds(times []int64, share float64) float64 {
	if len(times) == 0 {
		return 0
	}
	sort.Slice(times, func(i, j int) bool { return times[i] < times[j] })
	return float64(times[int(share*float64(len(times)-1))]) / 1e6
}

// resetPeak makes VmHWM count from now.
func resetPeak(pids []int) {
	for _, pid := range pids {
		os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
	}
}
