// A Go program whose goroutines hang in known ways, after a line on standard input.
package main

import (
	"bufio"
	"fmt"
	"os"
	"sync"
)

//go:noinline
func takes(n int, c chan int) int {
	if n == 0 {
		return <-c
	}
	return takes(n-1, c) + 1
}

//go:noinline
func locks(mu *sync.Mutex) int {
	mu.Lock()
	defer mu.Unlock()
	return 1
}

func main() {
	in := bufio.NewReader(os.Stdin)
	fmt.Println("ready")
	if _, err := in.ReadString('\n'); err != nil {
		os.Exit(1)
	}
	var mu sync.Mutex
	mu.Lock()
	go func() { takes(2, make(chan int)) }()
	go func() { locks(&mu) }()
	fmt.Println("done")
	if _, err := in.ReadString('\n'); err != nil {
		os.Exit(1)
	}
	os.Exit(7)
}
