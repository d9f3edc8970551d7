package main

import (
	"bufio"
	"errors"
	"net"
	"strings"
	"testing"
	"time"
)

func asked4(s shape) *request {
	r := newRequest(s, "h")
	r.stamp(4)
	return r
}

// through sends a body to an engine of role and returns what it answers, head and all.
func through(t *testing.T, role, body string) string {
	t.Helper()
	ours, theirs := net.Pipe()
	defer ours.Close()
	go (&engine{role: role, version: "v1"}).serve(theirs)
	go ours.Write([]byte("POST /v1/chat/completions HTTP/1.1\r\nContent-Length: " + number(int64(len(body))) + "\r\n\r\n" + body))
	ours.SetReadDeadline(time.Now().Add(time.Second))
	reader, said := bufio.NewReader(ours), ""
	for !strings.Contains(said, "\r\n\r\n") || !strings.Contains(said, "}}") && !strings.Contains(said, `"}`) && !strings.Contains(said, "0\r\n\r\n") {
		data := make([]byte, 4096)
		n, err := reader.Read(data)
		if err != nil {
			t.Fatalf("%v after %q", err, said)
		}
		said += string(data[:n])
	}
	return said
}

func bodyOf(r *request) string {
	_, body, _ := strings.Cut(string(r.raw), "\r\n\r\n")
	return body
}

func TestAnswersOfPixelsAndOfReportsAreTheSame(t *testing.T) {
	r := asked4(shape{items: 2, size: 64})
	if said := through(t, "pd", bodyOf(r)); !strings.Contains(said, string(r.expected)) {
		t.Errorf("pixels: %q is not in %q", r.expected, said)
	}
	first, second := grids(4*64), grids(4*64+1)
	report := `{"messages":[{"content":[{"text":"` + numberMark + number(4) + `"},{"type":"image_embeds","image_embeds":{"image_grid_thw":[1,` + first +
		`]},"uuid":"a"},{"type":"image_embeds","uuid":"b","image_embeds":{"image_grid_thw":[[1, ` + second + `]]}}]}],"ec_transfer_params":{"a":{"metadata":{"image_grid_thw":[1,2,2]}}}}`
	if said := through(t, "pd", report); !strings.Contains(said, string(r.expected)) {
		t.Errorf("reports: %q is not in %q", r.expected, said)
	}
}

func grids(n int64) string {
	height, width := grid(n)
	return strings.TrimLeft(number(height), "0") + "," + strings.TrimLeft(number(width), "0")
}

func TestAnEncoderReportsEqualPicturesOnce(t *testing.T) {
	part := func(n int64, uuid string) string {
		return `{"type":"image_url","image_url":{"url":"data:image/png;base64,` + pictureHead + string(rune(prompt)) + number(n) + `AAAA"},"uuid":"` + uuid + `"}`
	}
	said := through(t, "e", `{"messages":[{"content":[`+part(7, "a")+","+part(8, "b")+","+part(7, "a")+`]}]}`)
	for _, wanted := range []string{
		`"a":{"modality":"image","item_indices":[0,2],"metadata":{"image_grid_thw":[1,` + grids(7) + `]}}`,
		`"b":{"modality":"image","item_indices":[1],"metadata":{"image_grid_thw":[1,` + grids(8) + `]}}`,
	} {
		if !strings.Contains(said, wanted) {
			t.Errorf("%s is not in %s", wanted, said)
		}
	}
}

func TestADecodeEngineWantsTheParametersOfThisRequest(t *testing.T) {
	body := func(remote int64) string {
		return `{"content":"` + numberMark + number(4) + `","kv_transfer_params":{"remote_request_id":"p-` + number(remote) + `"}}`
	}
	if said := through(t, "d", body(4)); !strings.HasPrefix(said, "HTTP/1.1 200") {
		t.Error(said)
	}
	if said := through(t, "d", body(5)); !strings.HasPrefix(said, "HTTP/1.1 400") {
		t.Error(said)
	}
}

func TestAStreamMustBeWholeAndOfThisRequest(t *testing.T) {
	good := func(delta string) string {
		return `data: {"t":1,"delta":` + delta + `,` + string(asked4(shape{}).expected) + `v2"}` + "\n\n"
	}
	role, content, done := good(`{"role":"assistant"}`), good(`{"content":"x"}`), "data: [DONE]\n\n"
	cases := map[string]struct {
		stream string
		wanted error
	}{
		"whole":            {role + content + content + done, nil},
		"an event missing": {role + content + done, errWrong},
		"one too many":     {role + content + content + content + done, errWrong},
		"no end":           {role + content + content, errWrong},
		"no role chunk":    {content + content + done, errWrong},
		"after the end":    {role + content + content + done + content, errWrong},
		"of another":       {role + strings.Replace(content, number(4), number(5), 1) + content + done, errWrong},
	}
	for name, each := range cases {
		for _, size := range []int{1, 7, 1 << 20} { // however the bytes arrive
			check := streamCheck{request: asked4(shape{stream: true, chunks: 2}), out: &answer{}}
			var pending []byte
			var err error
			for at := 0; at < len(each.stream) && err == nil; at += size {
				pending = append(pending, each.stream[at:min(at+size, len(each.stream))]...)
				pending, err = check.events(pending, time.Now())
			}
			if err == nil {
				err = check.complete()
			}
			if !errors.Is(err, each.wanted) {
				t.Errorf("%s in pieces of %d: %v", name, size, err)
			}
			if each.wanted == nil && check.out.version != "v2" {
				t.Errorf("version %q", check.out.version)
			}
		}
	}
	check := streamCheck{request: asked4(shape{stream: true, chunks: 2}), out: &answer{}}
	if _, err := check.events([]byte("data: {\"error\":{}}\n\n"), time.Now()); !errors.As(err, &refused{}) {
		t.Errorf("an error event: %v", err)
	}
}

func TestNumbersOfRequestsAreNotRepeatedInTheirPictures(t *testing.T) {
	r := newRequest(shape{items: 2, size: 1024}, "h")
	one := string(r.stamp(1))
	two := string(r.stamp(2))
	if one == two || len(one) != len(two) {
		t.Error("a stamp must change the request and keep its length")
	}
	if strings.Count(two, number(2*64)) != 1 || strings.Count(two, number(2*64+1)) != 1 {
		t.Error("each picture has a number of its own")
	}
}

func TestATroubleIsNotToldAsOfATimeBeforeIt(t *testing.T) {
	s := &soak{}
	// a time that is rounded down to milliseconds is earlier, but for one in a thousand
	for range 3 {
		before := float64(time.Now().UnixMicro()) / 1e6
		s.note(errBrokenOff, "")
		if last := s.line.Troubles[len(s.line.Troubles)-1]; last.Time < before || last.How != "broken off" {
			t.Errorf("%+v, of %f or later", last, before)
		}
		time.Sleep(1100 * time.Microsecond)
	}
}
