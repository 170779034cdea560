// Calls that are left by panics. For each line of its input it has goroutines call
// dive, some of which panic at the bottom: "panic" or "return" says whether. It prints
// "done" and how often dive was called and returned; at the end of its input it ends.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"
)

var calls, returns int

//go:noinline
func dive(n int, how string) int {
	calls++
	r := n
	if n > 0 {
		r = dive(n-1, how) + 1
	} else if how == "panic" {
		panic("at the bottom")
	} else if how == "goexit" {
		runtime.Goexit()
	}
	returns++
	return r
}

// once dives from a depth of the stack of its own.
//
//go:noinline
func once(depth, n int, how string, pad [4]int) (s int) {
	if depth > 0 {
		return once(depth-1, n, how, pad) + pad[depth&3]
	}
	defer func() { _ = recover() }()
	return dive(n, how)
}

func main() {
	in := bufio.NewReader(os.Stdin)
	fmt.Println("ready")
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			os.Exit(7)
		}
		calls, returns = 0, 0
		done := make(chan int)
		for i := range 40 {
			go func() {
				defer func() { done <- 1 }()
				how := strings.TrimSpace(line)
				once(10+i%13, i%6, how, [4]int{})
				if how == "panic" { // it waits, with what it left on its stack
					done <- 1
					select {}
				}
			}()
			<-done
		}
		fmt.Println("done", calls, returns)
	}
}
