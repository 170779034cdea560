package main

import (
	"errors"
	"fmt"
	"os"
)

type pair struct {
	A int
	S string
}

type one struct{ N int }

// Parameters by their numbers: those of several words are what their names say, and the
// blank one has none.
//
// probe: p:all main.numbered n=$arg1:s64 s=$arg2 e=$arg3 p=$arg4 list=$arg5 o=$arg6 last=$arg7:s64
// probe: p:parts main.numbered a=$arg4.A s=$arg4.S second=$arg5[1] whole=$arg4
// probe: r:kept main.numbered p=$arg6 n=$arg1:s64 r=$retval
//
//go:noinline
func numbered(n int, _ string, err error, p pair, list []int, o one, last int) int {
	fmt.Printf("=all {\"n\":%d,\"s\":\"blank\",\"e\":{\"type\":\"*errors.errorString\",\"value\":{\"s\":\"no\"}},\"p\":{\"A\":%d,\"S\":%q},\"list\":[%d,%d],\"o\":{\"N\":%d},\"last\":%d}\n", n, p.A, p.S, list[0], list[1], o.N, last)
	fmt.Printf("=parts {\"a\":%d,\"s\":%q,\"second\":%d,\"whole\":{\"A\":%d,\"S\":%q}}\n", p.A, p.S, list[1], p.A, p.S)
	fmt.Printf("=kept {\"p\":{\"N\":%d},\"n\":%d,\"r\":%d}\n", o.N, n, n-1)
	return n - 1
}

func main() {
	n := len(os.Args)
	numbered(-n, "blank", errors.New("no"), pair{5 * n, "five"}, []int{n + 1, n + 2}, one{9 * n}, -7)
}
