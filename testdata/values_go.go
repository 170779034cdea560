package main

import (
	"errors"
	"fmt"
	"os"
)

type base struct{ ID int }

type other struct{ Note string }

type conn struct {
	base
	*other
	N    int
	Name string
	In   struct{ A, B string }
	OK   bool
}

type point struct{ X, Y float64 }

var counter = 5

// probe: p:params main.params n=s.len name=c.Name id=c.ID note=c.Note str p z w last counter c=c
// probe: r:results main.params c=counter n=$retval err=$retval2.data last
//
//go:noinline
func params(s []int, c conn, str string, p point, z complex128, w complex64, last int8) (int, error) {
	fmt.Printf("=params {\"n\":%d,\"name\":%q,\"id\":%d,\"note\":%q,\"str\":%q,\"p\":{\"X\":%g,\"Y\":%g},\"z\":{\"re\":%g,\"im\":%g},\"w\":{\"re\":%g,\"im\":%g},\"last\":%d,\"counter\":%d,\"c\":{\"N\":%d,\"Name\":%q,\"In\":{\"A\":%q,\"B\":%q},\"OK\":%t}}\n",
		len(s), c.Name, c.ID, c.Note, str, p.X, p.Y, real(z), imag(z), real(w), imag(w), last, counter, c.N, c.Name, c.In.A, c.In.B, c.OK)
	counter++
	fmt.Printf("=results {\"c\":%d,\"n\":%d,\"last\":%d}\n", counter, len(s)+len(str), last)
	return len(s) + len(str), errors.New("failed")
}

// probe: r:named main.named x y=y xx=$retval.X second=$retval2 failed=err.tab
//
//go:noinline
func named(n int) (x point, y string, err error) {
	x, y = point{float64(n) + 0.5, 2.5}, fmt.Sprint("text", n)
	fmt.Printf("=named {\"x\":{\"X\":%g,\"Y\":%g},\"y\":%q,\"xx\":%g,\"second\":%q,\"failed\":0}\n", x.X, x.Y, y, x.X, y)
	return
}

// probe: p:onstack main.onstack a b=b[1] c d
//
//go:noinline
func onstack(a int, b [3]int16, c string, d [2]int64) int {
	fmt.Printf("=onstack {\"a\":%d,\"b\":%d,\"c\":%q,\"d\":[%d,%d]}\n", a, b[1], c, d[0], d[1])
	return a + int(b[2]) + len(c) + int(d[1])
}

func main() {
	c := conn{base{7}, &other{"noted"}, 1, "hello", struct{ A, B string }{"a", "b"}, true}
	n, err := params([]int{1, 2, 3}, c, "str", point{1, 2.5}, complex(1.5, -2), complex(3, 4), -8)
	x, y, e := named(3)
	n += onstack(4, [3]int16{5, 6, 7}, "eight", [2]int64{9, 10})
	if n == 0 && err == e || x.X > 100 || y == "" {
		os.Exit(1)
	}
}
