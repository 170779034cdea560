// A program of Go for probes: small stacks that grow and that are used up by
// functions which don't check them, the collector at work, goroutines that are
// preempted in loops, panics, and a web server. Every frame keeps values that
// are looked at after the calls. It prints how often its functions were called.
package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

var wrong atomic.Int64

// leaf doesn't check its stack.
//
//go:noinline
func leaf(a, b int) int { return a*3 + b }

// walk uses its stack up bit by bit, and has chain do the rest at every depth:
// some call of chain has the least room that there can be.
//
//go:noinline
func walk(n, seed int) int {
	var keep [3]int
	keep[n%3] = seed
	s := chain(n, seed)
	if n > 0 {
		s += walk(n-1, seed+1)
	}
	if keep[n%3] != seed || keep[(n+1)%3] != 0 {
		wrong.Add(1)
	}
	return s
}

//go:nosplit
//go:noinline
func chain(n, seed int) int {
	var keep [26]int
	for i := range keep {
		keep[i] = seed + i
	}
	s := link(n, seed^1)
	for i := range keep {
		if keep[i] != seed+i {
			wrong.Add(1)
		}
	}
	return s
}

//go:nosplit
//go:noinline
func link(n, seed int) int {
	var keep [26]int
	for i := range keep {
		keep[i] = seed - i
	}
	s := last(n, seed^2)
	for i := range keep {
		if keep[i] != seed-i {
			wrong.Add(1)
		}
	}
	return s
}

//go:nosplit
//go:noinline
func last(n, seed int) int {
	var keep [20]int
	for i := range keep {
		keep[i] = seed ^ i
	}
	s := leaf(n, seed)
	for i := range keep {
		if keep[i] != seed^i {
			wrong.Add(1)
		}
	}
	return s
}

// grow has a frame that a new goroutine has no room for.
//
//go:noinline
func grow(n int, p *int) int {
	var keep [400]int
	keep[n%400] = n
	s := *p
	if n > 0 {
		s += grow(n-1, p) // a pointer into a stack that moves
	}
	if keep[n%400] != n {
		wrong.Add(1)
	}
	return s
}

// spin is a loop without calls: it is preempted by a signal.
//
//go:noinline
func spin(n int) (s uint64) {
	for i := range uint64(n) {
		s = s*2862933555777941757 + i
	}
	return s
}

// caught panics at a load from a nil pointer and recovers.
//
//go:noinline
func caught(p *int) (n int) {
	defer func() {
		if recover() != nil {
			n = -1
		}
	}()
	return load(p)
}

//go:noinline
func load(p *int) int { return *p + 1 }

//go:noinline
func handle(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%s?", r.URL.Path) }

func serve(rounds int) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return -1
	}
	defer l.Close()
	go http.Serve(l, http.HandlerFunc(handle))
	url := "http://" + l.Addr().String()
	var wg sync.WaitGroup
	var bytes atomic.Int64
	for k := range 4 {
		wg.Go(func() {
			for i := range rounds {
				r, err := http.Get(fmt.Sprintf("%s/%d", url, (i*7+k)%10))
				if err != nil {
					wrong.Add(1)
					continue
				}
				n, _ := io.Copy(io.Discard, r.Body)
				r.Body.Close()
				bytes.Add(n)
			}
		})
	}
	wg.Wait()
	return int(bytes.Load())
}

func work() (sum int) {
	var stop atomic.Bool
	var back sync.WaitGroup
	back.Go(func() {
		for !stop.Load() {
			runtime.GC()
			time.Sleep(2 * time.Millisecond)
		}
	})
	var wg sync.WaitGroup
	var total atomic.Int64
	for k := range 8 {
		wg.Go(func() {
			for i := range 12 {
				done := make(chan int)
				go func() { done <- walk(100, i*k) }()
				total.Add(int64(<-done))
				one := i
				go func() { done <- grow(5, &one) }()
				total.Add(int64(<-done))
				total.Add(int64(spin(20000) & 7))
				total.Add(int64(caught(nil) + caught(&one)))
			}
		})
	}
	wg.Wait()
	sum = int(total.Load()) + serve(25)
	stop.Store(true)
	back.Wait()
	return sum
}

func main() {
	runtime.GOMAXPROCS(8)
	in := bufio.NewReader(os.Stdin)
	fmt.Println("ready")
	in.ReadString('\n')
	sum := work()
	fmt.Printf("done %d, %d wrong\n", sum, wrong.Load())
	in.ReadString('\n')
	os.Exit(7)
}
