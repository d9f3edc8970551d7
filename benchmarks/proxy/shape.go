package main

// What a request looks like, and what its answer must say. Every request is another one: its number stands in the text
// and in each picture, so no cache and no coalescing saves a proxy its work, and an engine that repeats the numbers
// shows whether the answer belongs to the request.

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand"
)

const (
	digits = 16
	// pictureHead comes first in each picture's base64 (a PNG's first bytes), then `held` or `prompt`, then the number.
	pictureHead = "iVBORw0KGgoAAAANSUhEUgAA"
	held        = 'H'
	prompt      = 'p'
	numberMark  = "request number "
	// holdMicroseconds is how long an engine that was told to hold keeps a request: long enough for all connections of a
	// run to be busy at once.
	holdMicroseconds = 300_000
)

type shape struct {
	items, size, chunks, pace int
	stream, hold              bool
}

func (s *shape) flags(f *flag.FlagSet) {
	f.IntVar(&s.items, "items", 0, "pictures of a request")
	f.IntVar(&s.size, "size", 1024, "base64 characters of a picture")
	f.IntVar(&s.chunks, "chunks", 100, "content chunks of a stream")
	f.IntVar(&s.pace, "pace", 0, "microseconds between two chunks, or before an answer")
	f.BoolVar(&s.stream, "stream", false, "")
	f.BoolVar(&s.hold, "hold", false, "engines keep each request for 0.3 s")
}

// request is one worker's buffer: only the numbers in it change.
type request struct {
	shape
	raw       []byte
	numberAt  int
	pictureAt []int
	expected  []byte
}

func newRequest(s shape, host string) *request {
	r := &request{shape: s}
	pace := s.pace
	if s.hold && !s.stream {
		pace = holdMicroseconds
	}
	var body bytes.Buffer
	body.WriteString(`{"model":"m","messages":[{"role":"system","content":"You are a helpful assistant."},{"role":"user","content":`)
	if s.items > 0 {
		body.WriteString(`[{"type":"text","text":`)
	}
	body.WriteString(`"Write a short story about a proxy, please: ` + numberMark)
	r.numberAt = body.Len()
	body.WriteString(number(0) + `"`)
	if s.items > 0 {
		body.WriteString("}")
		for range s.items {
			body.WriteString(`,{"type":"image_url","image_url":{"url":"data:image/png;base64,`)
			r.pictureAt = append(r.pictureAt, body.Len()+len(pictureHead))
			body.Write(picture(s))
			body.WriteString(`"}}`)
		}
		body.WriteString("]")
	}
	fmt.Fprintf(&body, `}],"max_tokens":%d,"seed":%d,"stream":%v}`, s.chunks, pace, s.stream)
	r.raw = fmt.Appendf(nil, "POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAccept: */*\r\nContent-Length: %d\r\n\r\n", host, body.Len())
	head := len(r.raw)
	r.raw = append(r.raw, body.Bytes()...)
	r.numberAt += head
	for i := range r.pictureAt {
		r.pictureAt[i] += head
	}
	return r
}

// noise is base64 that does not compress.
var noise = func() []byte {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	data := make([]byte, 64<<10)
	for i := range data {
		data[i] = alphabet[rand.Intn(len(alphabet))]
	}
	return data
}()

func picture(s shape) []byte {
	data := []byte(pictureHead)
	if s.hold {
		data = append(data, held)
	} else {
		data = append(data, prompt)
	}
	data = append(data, number(0)...)
	for len(data) < s.size {
		data = append(data, noise[:min(len(noise), s.size-len(data))]...)
	}
	return data
}

// stamp makes the buffer request n, and notes what its answer must say.
func (r *request) stamp(n int64) []byte {
	text := number(n)
	copy(r.raw[r.numberAt:], text)
	r.expected = append(append(r.expected[:0], `"system_fingerprint":"`...), text...)
	for i, at := range r.pictureAt {
		own := n*64 + int64(i)
		copy(r.raw[at+1:], number(own))
		height, width := grid(own)
		r.expected = fmt.Appendf(r.expected, ":%d.%d", height, width)
	}
	r.expected = append(r.expected, '@')
	return r.raw
}

func number(n int64) string { return fmt.Sprintf("%0*d", digits, n) }

// grid is the size in patches that the encoder reports of a picture: another one for nearly every picture.
func grid(n int64) (height, width int64) { return 2 * (1 + n%97), 2 * (1 + n/97%89) }
