package main

// One keep-alive connection that asks and checks: status, framing, number of events, and whether the answer is the one to
// this very request.

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// patience is how long an answer may take before it counts as lost.
const patience = 25 * time.Second

var (
	errWrong     = errors.New("wrong answer")
	errBrokenOff = errors.New("broken off")
	errLost      = errors.New("no answer")
)

// refused is an answer other than 200, or an error event inside a stream: the client was told.
type refused struct{ text string }

func (r refused) Error() string { return r.text }

type client struct {
	address    string
	connection net.Conn
	reader     *bufio.Reader
	closing    bool
	buffer     [64 << 10]byte
	pending    []byte
}

// answer has times in nanoseconds since the request was sent; delays are from an event's sending to its arrival.
type answer struct {
	total, first int64
	events       int64
	version      string
	delays       []int64
}

func (c *client) close() {
	if c.connection != nil {
		c.connection.Close()
		c.connection = nil
	}
}

// ask sends r, which was stamped, and reads the answer to its end. After an error the connection is closed.
func (c *client) ask(r *request, out *answer) error {
	err := c.exchange(r, out)
	if err != nil || c.closing {
		c.close()
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return errLost
	}
	return err
}

func (c *client) open() error {
	if c.connection != nil {
		return nil
	}
	connection, err := net.Dial("tcp", c.address)
	if err != nil {
		return refused{"connection refused"}
	}
	c.connection, c.reader, c.closing = connection, bufio.NewReaderSize(connection, 64<<10), false
	return nil
}

func (c *client) exchange(r *request, out *answer) error {
	if err := c.open(); err != nil {
		return err
	}
	c.connection.SetDeadline(time.Now().Add(patience))
	began := time.Now()
	*out = answer{delays: out.delays[:0]}
	if _, err := c.connection.Write(r.raw); err != nil {
		return fmt.Errorf("%w: %w", errBrokenOff, err)
	}
	status, length, chunked, err := c.head()
	if err != nil {
		return err
	}
	c.pending = c.pending[:0]
	streamed := streamCheck{request: r, out: out}
	take := func(data []byte) error {
		now := time.Now()
		if out.first == 0 {
			out.first = int64(now.Sub(began))
		}
		c.pending = append(c.pending, data...)
		if !r.stream || status != 200 {
			return nil
		}
		rest, err := streamed.events(c.pending, now)
		c.pending = c.pending[:copy(c.pending, rest)]
		return err
	}
	if chunked {
		err = c.chunks(take)
	} else {
		err = c.bytes(length, take)
	}
	if err != nil {
		return err
	}
	out.total = int64(time.Since(began))
	if status != 200 {
		return refused{fmt.Sprintf("%d %.200s", status, c.pending)}
	}
	if r.stream {
		return streamed.complete()
	}
	return checkWhole(c.pending, r, out)
}

func (c *client) head() (status, length int, chunked bool, err error) {
	for first := true; ; first = false {
		line, err := c.reader.ReadSlice('\n')
		if err != nil {
			return 0, 0, false, fmt.Errorf("%w: %w", errBrokenOff, err)
		}
		if first {
			if len(line) < 12 {
				return 0, 0, false, fmt.Errorf("%w: %q", errWrong, line)
			}
			status, _ = strconv.Atoi(string(line[9:12]))
			continue
		}
		if len(line) <= 2 {
			return status, length, chunked, nil
		}
		if value, ok := header(line, "content-length:"); ok {
			length, _ = strconv.Atoi(value)
		} else if _, ok := header(line, "transfer-encoding:"); ok {
			chunked = true
		} else if value, ok := header(line, "connection:"); ok {
			c.closing = value == "close"
		}
	}
}

func (c *client) chunks(take func([]byte) error) error {
	for {
		line, err := c.reader.ReadSlice('\n')
		if err != nil {
			return fmt.Errorf("%w: %w", errBrokenOff, err)
		}
		size, err := strconv.ParseInt(string(bytes.TrimSpace(line)), 16, 32)
		if err != nil {
			return fmt.Errorf("%w: chunk size %q", errWrong, line)
		}
		if err := c.bytes(int(size), take); err != nil {
			return err
		}
		if _, err := c.reader.Discard(2); err != nil {
			return fmt.Errorf("%w: %w", errBrokenOff, err)
		}
		if size == 0 {
			return nil
		}
	}
}

func (c *client) bytes(size int, take func([]byte) error) error {
	for size > 0 {
		n, err := c.reader.Read(c.buffer[:min(size, len(c.buffer))])
		if err != nil {
			return fmt.Errorf("%w: %w", errBrokenOff, err)
		}
		size -= n
		if err := take(c.buffer[:n]); err != nil {
			return err
		}
	}
	return nil
}

func checkWhole(body []byte, r *request, out *answer) error {
	at := bytes.Index(body, r.expected)
	if at < 0 {
		return fmt.Errorf("%w: %.600s", errWrong, body)
	}
	out.version = versionOf(body[at+len(r.expected):])
	return nil
}

func versionOf(rest []byte) string {
	version, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(version)
}

// streamCheck follows one stream: a role chunk, then as many content chunks as were asked for, then [DONE].
type streamCheck struct {
	request *request
	out     *answer
	roles   int
	done    bool
}

// events takes the whole events in data and returns what is left.
func (s *streamCheck) events(data []byte, now time.Time) ([]byte, error) {
	for {
		end := bytes.Index(data, []byte("\n\n"))
		if end < 0 {
			return data, nil
		}
		if err := s.event(data[:end], now); err != nil {
			return nil, err
		}
		data = data[end+2:]
	}
}

func (s *streamCheck) event(event []byte, now time.Time) error {
	if bytes.Equal(event, []byte("data: [DONE]")) {
		s.done = true
		return nil
	}
	if bytes.HasPrefix(event, []byte(`data: {"error"`)) {
		return refused{string(event[:min(len(event), 200)])}
	}
	at := bytes.Index(event, s.request.expected)
	if at < 0 || s.done {
		return fmt.Errorf("%w: event %.300q, after the end: %v", errWrong, event, s.done)
	}
	if bytes.Contains(event, []byte(`"role"`)) {
		s.roles++
		return nil
	}
	s.out.events++
	s.out.version = versionOf(event[at+len(s.request.expected):])
	if at := bytes.Index(event, []byte(`"t":`)); at >= 0 {
		sent, _ := nextInteger(event[at:])
		s.out.delays = append(s.out.delays, now.UnixNano()-sent)
	}
	return nil
}

func (s *streamCheck) complete() error {
	if s.roles != 1 || int(s.out.events) != s.request.chunks || !s.done {
		return fmt.Errorf("%w: looks complete with %d role chunks, %d of %d content chunks, [DONE]: %v", errWrong, s.roles, s.out.events, s.request.chunks, s.done)
	}
	return nil
}

// statistics asks an engine what it has seen.
func statistics(address string) (found engineStatistics) {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer connection.Close()
	connection.SetDeadline(time.Now().Add(5 * time.Second))
	io.WriteString(connection, "GET /bench HTTP/1.1\r\nhost: bench\r\n\r\n")
	reader := bufio.NewReader(connection)
	length := 0
	for {
		line, err := reader.ReadSlice('\n')
		if err != nil {
			return
		}
		if value, ok := header(line, "content-length:"); ok {
			length, _ = strconv.Atoi(value)
		}
		if len(line) <= 2 {
			break
		}
	}
	body := make([]byte, length)
	io.ReadFull(reader, body)
	found.read(body)
	return
}
