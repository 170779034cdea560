package main

import (
	"fmt"
	"os"
	"strings"
)

// probe: p:words main.words a=$arg1:s64 b=$arg2:s64 s=+0($arg3):string n=$arg4 c=$arg9:s64
// probe: r:result main.words r=$retval:s64 a=$arg1:s64
//
//go:noinline
func words(a, b int, s string, c, d, e, f, g int) int {
	text, _, _ := strings.Cut(s, "\x00")
	fmt.Printf("=words {\"a\":%d,\"b\":%d,\"s\":%q,\"n\":%d,\"c\":%d}\n=result {\"r\":%d,\"a\":%d}\n", a, b, text, len(s), g, a*b, a)
	return a * b
}

func main() {
	words(-3, len(os.Args)+3, "text\x00", 1, 2, 3, 4, -5)
}
