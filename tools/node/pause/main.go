// pause waits for a signal and reaps what becomes an orphan beside it: the first process of a pod's
// sandbox, and of the machine that tools/servers makes for a node.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Set when it is built.
var version = "unknown"

func main() {
	if len(os.Args) > 1 {
		fmt.Println("pause", version)
		return
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return
		}
		// One signal may stand for several.
		for pid := 1; pid > 0; {
			pid, _ = syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		}
	}
}
