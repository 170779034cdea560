// Eight goroutines call outer, which calls inner, 20 times each; inner waits a
// millisecond, and may go on in another thread.
package main

import (
	"sync"
	"time"
)

//go:noinline
func inner(n int) int {
	time.Sleep(time.Millisecond)
	return n + 1
}

//go:noinline
func outer(n int) int { return inner(n) + 1 }

func main() {
	var all, start sync.WaitGroup
	start.Add(8) // none ends before all are there: each is a goroutine of its own
	for range 8 {
		all.Go(func() {
			start.Done()
			start.Wait()
			for i := range 20 {
				outer(i)
			}
		})
	}
	all.Wait()
}
