// Goroutines that compute without end. It prints "ready PID", and "done BAD"
// when its input ends, BAD being how many results were wrong.
package main

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

//go:noinline
func sum(depth, by int) int {
	if depth == 0 {
		return by
	}
	return sum(depth-1, by+depth)
}

type node struct{ next *node }

// nils dereferences a nil pointer, which the runtime makes a panic.
//
//go:noinline
func nils(n *node) (caught bool) {
	defer func() { caught = recover() != nil }()
	return n.next == nil
}

func main() {
	debug.SetGCPercent(20)
	var stop atomic.Bool
	var bad atomic.Int64
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for !stop.Load() {
				if sum(20, i) != 210+i || !nils(nil) {
					bad.Add(1)
				}
			}
		}()
	}
	fmt.Println("ready", os.Getpid())
	_, _ = io.Copy(io.Discard, os.Stdin)
	stop.Store(true)
	wg.Wait()
	fmt.Println("done", bad.Load())
}
