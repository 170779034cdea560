// Go values for a comparison with delve: parameters at entries, variables at lines.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
)

type level uint8

type point struct {
	X  int16
	Y  int
	On bool
}

type base struct{ ID int }

type conn struct {
	base
	*point
	Name string
	Tags []string
	In   struct{ A, B string }
	Lv   level
	Any  any
	Err  error
}

type code int

func (c code) Error() string { return "code" }

//go:noinline
func ints(a int8, b int16, c int32, d int64, e uint8, f uint16, g uint32, h uint64, i uintptr) {
	keep(a, b, c, d, e, f, g, h, i)
}

//go:noinline
func others(b bool, f float32, g float64, r rune, s string, l level, n named, m []named, o numbers) {
	keep(b, f, g, r, s, l, n, m, o)
}

//go:noinline
func lists(a []int, b []string, c [][]int16, d [3]int32, e []point, f []*point, g [2][2]uint8) {
	keep(a, b, c, d, e, f, g)
}

//go:noinline
func structs(p point, c conn, q *point, n *conn) { keep(p, c, q, n) }

//go:noinline
func interfaces(a any, e error, l []any, s fmt.Stringer) { keep(a, e, l, s) }

//go:noinline
func (c *conn) method(by int, to ...string) { keep(c, by, to) }

//go:noinline
func (p point) value(f float64) { keep(p, f) }

//go:noinline
func closure(n int, s string) func(int, string) {
	return func(k int, w string) {
		sum := n + k
		text := s + w
		keep(sum, text) // CLOSURE
	}
}

//go:noinline
func lines(n int) {
	total := n * 3
	text := fmt.Sprint("text ", n)
	list := make([]int, 0, 20)
	for i := range n {
		list = append(list, i*i)
	}
	p := &point{int16(n), -n, n%2 == 0}
	var v any = *p
	var e error = code(n)
	keep(total, text, list, p, v, e) // LINE
}

var kept []any

//go:noinline
func keep(v ...any) { kept = v }

type named string

type numbers []int

func (n named) String() string { return string(n) }

func main() {
	for n := range 6 {
		m := int64(n)
		ints(int8(-m), int16(m-300), int32(math.MinInt32+m), math.MaxInt64-m, uint8(250+n), uint16(65530+n), uint32(math.MaxUint32-m), math.MaxUint64-uint64(n), uintptr(n))
		others(n%2 == 0, float32(n)/4, -float64(n)*1.5, rune('a'+n), []string{"", "plain", "q\"uote", "ünï", "line\n", "a longer text than the others are"}[n], level(n), named("named"), []named{"one", "two"}, numbers{1, n})
		var in []int
		var words []string
		var deep [][]int16
		var points []point
		var far []*point
		for i := range n {
			in = append(in, i-2)
			words = append(words, fmt.Sprint("w", i))
			deep = append(deep, make([]int16, i))
			points = append(points, point{int16(i), i, i == 1})
			far = append(far, &point{int16(-i), i, true})
		}
		lists(in, words, deep, [3]int32{1, int32(n), -3}, points, far, [2][2]uint8{{1, 2}, {3, uint8(n)}})
		p := point{int16(n), 7 * n, true}
		c := conn{base{n}, &p, fmt.Sprint("conn", n), words, struct{ A, B string }{"a", "b"}, level(n), n, code(n)}
		next := &c
		if n == 3 {
			next = nil
		}
		structs(p, c, &p, next)
		things := []any{nil, n, "text", p, &p, []int{1, n}, 2.5}
		failures := []error{nil, code(n), errors.New("plain"), &fs.PathError{Op: "open", Path: "/p", Err: code(2)}, fmt.Errorf("w: %w", errors.New("in")), code(-1)}
		interfaces(things[n], failures[n], things[:n], named("name"))
		c.method(n, words...)
		p.value(float64(n) / 8)
		closure(n, "s")(n*2, "w")
		lines(n)
	}
	if len(kept) == 0 {
		os.Exit(1)
	}
}
