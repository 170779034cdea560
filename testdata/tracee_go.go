// Goroutines with small stacks that compute, allocate and check; prints its
// process id first and ends with status 0 when standard input closes.
package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

func sum(depth int, xs ...int) int {
	if depth == 0 {
		return len(fmt.Sprint(xs))
	}
	return sum(depth-1, append(xs, depth)...)
}

func main() {
	var stop atomic.Bool
	var wg sync.WaitGroup
	want := sum(20)
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for !stop.Load() {
				done := make(chan int)
				go func() { done <- sum(20) }()
				if <-done != want {
					os.Exit(1)
				}
			}
		}()
	}
	go func() {
		for range time.Tick(time.Millisecond) {
			if stop.Load() {
				return
			}
		}
	}()
	fmt.Println(os.Getpid())
	_, _ = io.Copy(io.Discard, os.Stdin)
	stop.Store(true)
	wg.Wait()
}
