package main

// An engine that answers as vLLM does and computes nothing. HTTP/1.1 over plain connections: no framework whose cost would
// differ from proxy to proxy.
//
// Roles: e answers a primer with ec_transfer_params; pd and d answer with JSON or with a role chunk, content chunks and
// [DONE]; p with kv_transfer_params. A request steers its answer by ordinary fields that every proxy passes on: max_tokens
// is the number of chunks, seed the microseconds between two of them (or before a whole answer). Each chunk has its time
// of sending (`t`, ns) and what the engine was asked: the request's number and its pictures' grids, whether they came as
// pixels or as an encoder's report.

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync/atomic"
	"time"
)

// idleLimit is after how long vLLM closes an idle connection (VLLM_HTTP_TIMEOUT_KEEP_ALIVE).
const idleLimit = 5 * time.Second

// answerText is the characters of a whole answer: 100 tokens.
const answerText = 400

type engine struct {
	role, version                             string
	connections, requests, pictures, reported atomic.Int64
}

func engineMain(args []string) {
	flags := flag.NewFlagSet("engine", flag.ExitOnError)
	address := flags.String("listen", "127.0.0.1:0", "")
	e := &engine{}
	flags.StringVar(&e.role, "role", "pd", "e, pd, p or d")
	flags.StringVar(&e.version, "version", "v1", "named in every answer")
	flags.Parse(args)
	listener := listen(*address)
	for {
		connection, err := listener.Accept()
		if err != nil {
			fail(err)
		}
		go e.serve(connection)
	}
}

// exchange is one connection's state; its buffers are used again.
type exchange struct {
	connection       net.Conn
	reader           *bufio.Reader
	target           []byte
	body, head, text []byte
}

func (e *engine) serve(connection net.Conn) {
	defer connection.Close()
	x := &exchange{connection: connection, reader: bufio.NewReaderSize(connection, 64<<10)}
	for counted := false; ; {
		connection.SetReadDeadline(time.Now().Add(idleLimit))
		if !x.read() {
			return
		}
		if bytes.HasPrefix(x.target, []byte("GET /bench")) {
			x.reply(200, fmt.Appendf(nil, `{"connections":%d,"requests":%d,"pictures":%d,"reported":%d}`,
				e.connections.Load(), e.requests.Load(), e.pictures.Load(), e.reported.Load()))
			continue
		}
		if !counted {
			counted = true
			e.connections.Add(1)
		}
		if !e.answer(x) {
			return
		}
	}
}

// read takes the next request; what it leaves in x is valid until the next call.
func (x *exchange) read() bool {
	length, chunked := 0, false
	for first := true; ; first = false {
		line, err := x.reader.ReadSlice('\n')
		if err != nil {
			return false
		}
		if first {
			x.connection.SetReadDeadline(time.Time{})
			x.target = append(x.target[:0], line...)
			continue
		}
		if len(line) <= 2 {
			break
		}
		if value, ok := header(line, "content-length:"); ok {
			length, _ = strconv.Atoi(value)
		} else if _, ok := header(line, "transfer-encoding:"); ok {
			chunked = true
		}
	}
	x.body = x.body[:0]
	if !chunked {
		return x.take(length)
	}
	for {
		line, err := x.reader.ReadSlice('\n')
		if err != nil {
			return false
		}
		size, err := strconv.ParseInt(string(bytes.TrimSpace(line)), 16, 32)
		if err != nil || !x.take(int(size)) {
			return false
		}
		x.reader.Discard(2)
		if size == 0 {
			return true
		}
	}
}

func (x *exchange) take(size int) bool {
	start := len(x.body)
	if cap(x.body) < start+size {
		x.body = append(make([]byte, 0, start+size), x.body...)
	}
	x.body = x.body[:start+size]
	_, err := io.ReadFull(x.reader, x.body[start:])
	return err == nil
}

func header(line []byte, name string) (string, bool) {
	if len(line) <= len(name) || !bytes.EqualFold(line[:len(name)], []byte(name)) {
		return "", false
	}
	return string(bytes.TrimSpace(line[len(name):])), true
}

func (x *exchange) reply(status int, body []byte) bool {
	x.head = fmt.Appendf(x.head[:0], "HTTP/1.1 %d X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n", status, len(body))
	_, err := x.connection.Write(append(x.head, body...))
	return err == nil
}

func (e *engine) answer(x *exchange) bool {
	if bytes.HasPrefix(x.target, []byte("GET")) {
		if bytes.Contains(x.target, []byte("/v1/models")) {
			return x.reply(200, []byte(`{"object":"list","data":[{"id":"m","object":"model","created":1,"owned_by":"vllm","max_model_len":32768}]}`))
		}
		return x.reply(200, nil)
	}
	e.requests.Add(1)
	switch e.role {
	case "e":
		return e.encode(x)
	case "p":
		return e.prefill(x)
	case "d":
		if remote := text(x.body, `"remote_request_id"`); remote != "p-"+asked(x.body) {
			return x.reply(400, []byte(`{"error":{"message":"not the kv_transfer_params of this request","code":400}}`))
		}
	}
	return e.decode(x)
}

// encode reports each picture under its part's uuid. A part has one uuid and one picture, so the n-th of each belong
// together, in whichever order a proxy writes the fields.
func (e *engine) encode(x *exchange) bool {
	type entry struct {
		uuid          string
		indices       []byte
		height, width int64
	}
	var entries []entry
	hold := false
	pictures, uuids := x.body, x.body
	for index := 0; ; index++ {
		var picture []byte
		picture, pictures = nextPicture(pictures)
		if picture == nil {
			break
		}
		hold = hold || picture[0] == held
		height, width := grid(pictureNumber(picture))
		var uuid string
		uuid, uuids = nextText(uuids, `"uuid"`)
		known := false
		for i := range entries {
			if known = entries[i].uuid == uuid; known {
				entries[i].indices = fmt.Appendf(entries[i].indices, ",%d", index)
				break
			}
		}
		if !known {
			entries = append(entries, entry{uuid, strconv.AppendInt(nil, int64(index), 10), height, width})
		}
	}
	e.pictures.Add(int64(len(entries)))
	if hold {
		time.Sleep(holdMicroseconds * time.Microsecond)
	}
	x.text = append(x.text[:0], `{"id":"chatcmpl-e","object":"chat.completion","created":1764000000,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":""},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":0,"total_tokens":10},"ec_transfer_params":{`...)
	for i, each := range entries {
		if i > 0 {
			x.text = append(x.text, ',')
		}
		x.text = fmt.Appendf(x.text, `"%s":{"modality":"image","item_indices":[%s],"metadata":{"image_grid_thw":[1,%d,%d]}}`, each.uuid, each.indices, each.height, each.width)
	}
	x.text = append(x.text, "}}"...)
	return x.reply(200, x.text)
}

func (e *engine) prefill(x *exchange) bool {
	x.text = fmt.Appendf(x.text[:0], `{"id":"chatcmpl-p","object":"chat.completion","created":1764000000,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":" t"},"finish_reason":"length"}],"usage":{"prompt_tokens":10,"completion_tokens":1,"total_tokens":11},"kv_transfer_params":{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[1,2,3,4]],"remote_engine_id":"5f0c2c6e","remote_request_id":"p-%s","remote_host":"127.0.0.1","remote_port":5600,"tp_size":1}}`, asked(x.body))
	return x.reply(200, x.text)
}

// decode repeats what was asked: the request's number, and the grid of each picture.
func (e *engine) decode(x *exchange) bool {
	fingerprint := []byte(asked(x.body))
	for rest := x.body; ; {
		var picture []byte
		if picture, rest = nextPicture(rest); picture == nil {
			break
		}
		e.pictures.Add(1)
		height, width := grid(pictureNumber(picture))
		fingerprint = fmt.Appendf(fingerprint, ":%d.%d", height, width)
	}
	for rest := x.body; ; {
		var height, width int64
		var found bool
		if height, width, rest, found = nextReport(rest); !found {
			break
		}
		e.reported.Add(1)
		fingerprint = fmt.Appendf(fingerprint, ":%d.%d", height, width)
	}
	fingerprint = append(append(fingerprint, '@'), e.version...)
	chunks, pace := integer(x.body, `"max_tokens"`, 100), time.Duration(integer(x.body, `"seed"`, 0))*time.Microsecond
	if bytes.Contains(x.body, []byte(`"stream":true`)) || bytes.Contains(x.body, []byte(`"stream": true`)) {
		return x.stream(fingerprint, chunks, pace)
	}
	time.Sleep(pace)
	x.text = fmt.Appendf(x.text[:0], `{"id":"chatcmpl-0123456789abcdef","object":"chat.completion","created":1764000000,"model":"m","t":%d,"choices":[{"index":0,"message":{"role":"assistant","content":"%0*d"},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":100,"total_tokens":110},"system_fingerprint":"%s"}`, time.Now().UnixNano(), answerText, 0, fingerprint)
	return x.reply(200, x.text)
}

func (x *exchange) stream(fingerprint []byte, chunks int64, pace time.Duration) bool {
	x.head = append(x.head[:0], "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"...)
	x.event(fingerprint, `{"role":"assistant","content":""}`)
	next := time.Now()
	for i := range chunks {
		if _, err := x.connection.Write(x.head); err != nil {
			return false
		}
		x.head = x.head[:0]
		if pace > 0 && i > 0 {
			next = next.Add(pace)
			time.Sleep(time.Until(next))
		}
		x.event(fingerprint, `{"content":" token"}`)
	}
	x.head = append(x.head, "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"...)
	_, err := x.connection.Write(x.head)
	return err == nil
}

func (x *exchange) event(fingerprint []byte, delta string) {
	x.text = fmt.Appendf(x.text[:0], `data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1764000000,"model":"m","t":%d,"choices":[{"index":0,"delta":%s,"logprobs":null,"finish_reason":null}],"system_fingerprint":"%s"}`+"\n\n", time.Now().UnixNano(), delta, fingerprint)
	x.head = fmt.Appendf(x.head, "%x\r\n", len(x.text))
	x.head = append(append(x.head, x.text...), "\r\n"...)
}

// asked returns the number that stands in the request's text.
func asked(body []byte) string {
	if at := bytes.Index(body, []byte(numberMark)); at >= 0 && at+len(numberMark)+digits <= len(body) {
		return string(body[at+len(numberMark):][:digits])
	}
	return ""
}

// nextPicture returns what follows the head of the next picture: the mark, then the number.
func nextPicture(body []byte) (picture, rest []byte) {
	mark := []byte(";base64," + pictureHead)
	at := bytes.Index(body, mark)
	if at < 0 || at+len(mark)+1+digits > len(body) {
		return nil, nil
	}
	return body[at+len(mark):][:1+digits], body[at+len(mark):]
}

// nextReport returns the grid of the next part that stands for a picture. The encoder's words in ec_transfer_params, which
// some proxies send along, are none.
func nextReport(body []byte) (height, width int64, rest []byte, found bool) {
	at := bytes.Index(body, []byte(`"type":"image_embeds"`))
	if at < 0 {
		return
	}
	rest = body[at:]
	if at = bytes.Index(rest, []byte(`"image_grid_thw"`)); at < 0 {
		return
	}
	_, rest = nextInteger(rest[at:])
	height, rest = nextInteger(rest)
	width, rest = nextInteger(rest)
	return height, width, rest, true
}

func pictureNumber(picture []byte) int64 {
	n, _ := strconv.ParseInt(string(picture[1:]), 10, 64)
	return n
}

func text(body []byte, key string) string {
	value, _ := nextText(body, key)
	return value
}

// nextText returns the string after the next `key`.
func nextText(body []byte, key string) (value string, rest []byte) {
	at := bytes.Index(body, []byte(key))
	if at < 0 {
		return "", nil
	}
	rest = bytes.TrimLeft(body[at+len(key):], ": ")
	if len(rest) == 0 || rest[0] != '"' {
		return "", rest
	}
	end := bytes.IndexByte(rest[1:], '"')
	if end < 0 {
		return "", nil
	}
	return string(rest[1 : 1+end]), rest[end+2:]
}

func integer(body []byte, key string, otherwise int64) int64 {
	// a proxy writes its fields after the messages or keeps them there; pictures are the bulk of a body
	at := bytes.LastIndex(body, []byte(key))
	if at < 0 {
		return otherwise
	}
	value, _ := nextInteger(body[at+len(key):])
	return value
}

func nextInteger(body []byte) (value int64, rest []byte) {
	for len(body) > 0 && (body[0] < '0' || body[0] > '9') {
		body = body[1:]
	}
	for len(body) > 0 && body[0] >= '0' && body[0] <= '9' {
		value, body = value*10+int64(body[0]-'0'), body[1:]
	}
	return value, body
}
