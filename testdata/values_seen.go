package main

import (
	"fmt"
	"os"
)

var kept any

//go:noinline
func mark(n int) {}

// A function literal that is inlined sees the variables of the function that it is
// written in.
//
// probe: p:within values_seen.go:WITHIN x y k
//
//go:noinline
func writer(x int, y string) int {
	sum := x
	kept = &sum
	func(k int) {
		sum += k
		fmt.Printf("=within {\"x\":%d,\"y\":%q,\"k\":%d}\n", x, y, k)
		mark(sum) // WITHIN
	}(x * 2)
	return sum + len(y)
}

func closures(x int, y string) func(int) int {
	return func(k int) int {
		x += k
		mark(x) // ELSEWHERE
		return x + len(y)
	}
}

//go:noinline
func elsewhere(n int) int {
	x, y := "the caller's", n
	fn := closures(n, "z")
	return fn(n) + len(x) + y
}

func main() {
	elsewhere(writer(len(os.Args)+3, "y"))
}
