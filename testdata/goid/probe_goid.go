// Goroutines that tell their numbers to work.
package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
)

//go:noinline
func work(id int) int { return id * 2 }

// number is the number of the goroutine, as its traceback has it.
func number() int {
	var b [64]byte
	fields := bytes.Fields(b[:runtime.Stack(b[:], false)])
	n, _ := strconv.Atoi(string(fields[1]))
	return n
}

func main() {
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("role", "main")))
	in := bufio.NewReader(os.Stdin)
	fmt.Println("ready")
	_, _ = in.ReadString('\n')
	var all sync.WaitGroup
	for range 8 {
		all.Add(1)
		go func() {
			defer all.Done()
			id := strconv.Itoa(number())
			pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels(
				"id", id, "odd", strings.Repeat("x", number()%2), "a.longer/name-of-20", "long "+id, "a.longer/name-of-21", "other")))
			for range 10 {
				work(number())
				runtime.Gosched()
			}
		}()
	}
	all.Wait()
	fmt.Println("done")
	_, _ = in.ReadString('\n')
	os.Exit(7)
}
