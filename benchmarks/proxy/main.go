// Command proxybench has what the proxy is measured with: engines that cost nothing, a loader, and a relay as the floor.
// One binary, standard library only. `python benchmarks/proxy` builds and drives it; traffic stays on the loopback.
package main

import (
	"fmt"
	"net"
	"os"
)

func main() {
	commands := map[string]func([]string){"engine": engineMain, "load": loadMain, "relay": relayMain, "soak": soakMain}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: proxybench engine|load|relay|soak [flags]")
		os.Exit(2)
	}
	commands[os.Args[1]](os.Args[2:])
}

// listen binds a port of the loopback and says on stdout which.
func listen(address string) net.Listener {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		fail(err)
	}
	fmt.Println(listener.Addr())
	return listener
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func loopbackOnly(address string) {
	host, _, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		fail(fmt.Errorf("%q is not an address of the loopback", address))
	}
}
