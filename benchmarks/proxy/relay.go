package main

// A relay of bytes in user space: one read and one write a segment, nothing understood. What a proxy costs beside it is
// what the proxy does with requests.

import (
	"flag"
	"io"
	"net"
)

// These hide ReadFrom and WriteTo, with which Go would splice in the kernel.
type onlyWriter struct{ io.Writer }
type onlyReader struct{ io.Reader }

func relayMain(args []string) {
	flags := flag.NewFlagSet("relay", flag.ExitOnError)
	address := flags.String("listen", "127.0.0.1:0", "")
	to := flags.String("to", "", "address of the engine")
	flags.Parse(args)
	loopbackOnly(*to)
	listener := listen(*address)
	for {
		client, err := listener.Accept()
		if err != nil {
			fail(err)
		}
		go relay(client, *to)
	}
}

func relay(client net.Conn, to string) {
	defer client.Close()
	engine, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer engine.Close()
	go func() {
		copyBytes(engine, client)
		engine.Close()
		client.Close()
	}()
	copyBytes(client, engine)
}

func copyBytes(to io.Writer, from io.Reader) {
	io.CopyBuffer(onlyWriter{to}, onlyReader{from}, make([]byte, 64<<10))
}
