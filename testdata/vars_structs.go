// Structures with strings in them, for tests of values printed whole.
package main

import (
	"bufio"
	"fmt"
	"os"
)

type request struct {
	Method string
	N      int
	Empty  string
	In     struct{ Host, Path string }
	Names  [2]string
}

//go:noinline
func take(r *request) int { return r.N + len(r.Method) }

func main() {
	in := bufio.NewReader(os.Stdin)
	r := &request{Method: "GET", N: 5, Names: [2]string{"first", "second"}}
	r.In.Host, r.In.Path = "localhost", "/index.html"[:6]
	fmt.Println("ready")
	if _, err := in.ReadString('\n'); err != nil {
		os.Exit(1)
	}
	sum := 0
	for range 3 {
		sum += take(r)
	}
	fmt.Println("done", sum)
	if _, err := in.ReadString('\n'); err != nil {
		os.Exit(1)
	}
	os.Exit(7)
}
