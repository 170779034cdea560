package main

import (
	"fmt"
	"os"
	"strings"
	"unsafe"
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

// Words of results, in the registers that words of parameters are in: an error is two.
//
// probe: r:several main.several r=$retval1:s64 s=+0($retval2):string n=$retval3 e=$retval4 last=$retval6:s16
//
//go:noinline
func several(n int, err error) (int, string, error, int16) {
	text := strings.Repeat("ab\x00", n)
	e := *(*uint64)(unsafe.Pointer(&err)) // 0 of nil, else where its methods are
	fmt.Printf("=several {\"r\":%d,\"s\":\"ab\",\"n\":%d,\"e\":%d,\"last\":%d}\n", -n, len(text), e, -n)
	return -n, text, err, int16(-n)
}

func main() {
	several(1, nil)
	several(300, os.ErrNotExist)
	words(-3, len(os.Args)+3, "text\x00", 1, 2, 3, 4, -5)
}
