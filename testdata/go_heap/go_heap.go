// Go's variables where they are hard to find: on the heap, under names of others,
// captured, returned on the stack, far from their map, in registers that a loop moves.
// Each place is told by the program itself, in kprobe's words, just before.
package main

import (
	"errors"
	"fmt"
)

type large struct {
	Words [100]int16
	N     int
}

type wide struct{ A, B, C, D, E, F, G, H, I, J, K, L int }

type padded struct {
	None struct{}
	B    int
	Zero [0]int
}

var (
	escaped any
	target  large
)

//go:noinline
func escape(p any) { escaped = p }

//go:noinline
func tell(format string, args ...any) { fmt.Printf(format+"\n", args...) }

//go:noinline
func shadowed(x int) int {
	sum := x
	{
		x := x + 100
		escape(&x)
		x += 1000
		tell("inner x=%d", x)
		sum += x // inner
	}
	return sum + x
}

//go:noinline
func moved(x int, w wide, s string) (out int) {
	escape(&x)
	escape(&w)
	escape(&s)
	tell("entered x=%d w.L=%d s=%q", x, w.L, s)
	x += 500
	w.C = x
	s += "more"
	tell("moved x=%d w.C=%d w.L=%d s=%q", x, w.C, w.L, s)
	escape(nil) // moved
	return x
}

//go:noinline
func counter(n int) func() int {
	x := n
	return func() int {
		x++
		tell("captured x=%d", x)
		y := x // captured
		escape(nil)
		return y
	}
}

//go:noinline
func held(w wide, n int) func() int {
	return func() int {
		escape(nil)
		return w.C + n
	}
}

//go:noinline
func results(k int, a [2]int8, big [3]int) (r [2]int8, s string, far [2]int, err error) {
	if k == 1 {
		return a, "one", [2]int{7, 8}, nil
	}
	r[0] = int8(k)
	far[1] = big[2]
	return r, "other", far, nil
}

//go:noinline
func copied(p *large, k int) int {
	y := *p
	tell("copied p.N=%d k=%d", p.N, k)
	return lines(p, k) + int(y.Words[k])
}

//go:noinline
func lines(p *large, k int) int {
	y := *p
	escape(nil) // copied
	y.Words[k] = 7
	use(&y)
	return int(y.Words[3]) + k
}

//go:noinline
func use(l *large) { l.N++ }

//go:noinline
func far(keys map[[200]byte]int, values map[int][17]wide, both map[wide]wide) { escape(keys) }

//go:noinline
func anything(v any, list [][2]string) { escape(list) }

//go:noinline
func empty(none struct{}, zero [0]int, p padded, list []struct{}, c chan struct{}) { escape(list) }

//go:noinline
func longer(l [100]int16) { escape(nil) }

type inner struct {
	N int
	I struct {
		S string
		K int8
	}
}

type nested struct {
	inner
	Z    int
	Zero [0]int
}

//go:noinline
func pieces(x nested) { escape(nil) }

//go:noinline
func bare(p padded) padded { return p }

//go:noinline
func instead(n, a, b int, err, cause error) int {
	if a == 0 || err == nil {
		panic("none")
	}
	if b == 0 {
		b = a // by a conditional move
	}
	if cause == nil {
		cause = err
	}
	escape(nil)
	kept = append(kept[:0], err, cause)
	return a + b
}

var kept []error

//go:noinline
func channels(none, c, closed chan int, list []chan int8) { escape(nil) }

// deferred has a deferred call that it makes itself, which changes a result.
//
//go:noinline
func deferred(n int, s string) (m int8, out int16, last string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = failure("recovered")
		}
		out += int16(len(s))
	}()
	m, out, last = int8(n), 7, s
	{
		out := s + s
		add([]int{len(out)})
	}
	if n == 1 {
		panic(n)
	}
	return m, out + 1, last + "!", nil
}

type failure string

func (f failure) Error() string { return string(f) }

//go:noinline
func early(n int) int {
	tell("early n=%d", n)
	escape(nil) // early
	later := [3]int{n, 5, 7}
	if n > 2 {
		within := [2]int{n, n}
		add(within[:])
		later[1] = within[1]
	}
	add(later[:])
	tell("late n=%d later={%d,%d,%d}", n, later[0], later[1], later[2])
	escape(nil) // late
	return later[n&1]
}

//go:noinline
func add(l []int) { l[0]++ }

//go:noinline
func sums(n int) (sum int) {
	defer func() { sum++ }()
	sum = n * 2
	tell("sums n=%d sum=%d", n, sum)
	escape(nil) // sums
	return sum + n
}

//go:noinline
func shorter(list []any) (n int) {
	for _, v := range list {
		tell("shorter list={int(%d),string(%q)}", list[0], list[1])
		use(&large{N: len(fmt.Sprint(v))})
		escape(nil) // shorter
		n++
	}
	return n
}

func main() {
	for i := range 3 {
		shadowed(1 + i)
		moved(7+i, wide{L: i}, "s")
		f := counter(3 + i)
		f()
		f()
		held(wide{C: i}, 40+i)()
		r, s, both, err := [2]int8{int8(i)}, "other", [2]int{0, 30 + i}, error(nil)
		if i == 1 {
			r, s, both = [2]int8{3, 4}, "one", [2]int{7, 8}
		}
		tell("results k=%d r={%d,%d} s=%q far={%d,%d} err=nil", i, r[0], r[1], s, both[0], both[1])
		tell("alone arg1={%d,%d} retval2=%q retval3={%d,%d}", r[0], r[1], s, both[0], both[1])
		_, _, _, _ = results(i, [2]int8{3, 4}, [3]int{1, 2, 30 + i})
		_ = err
		copied(&large{N: 5 + i}, i)
		tell("far keys={[{%d,...}]=3} values={[%d]={{A=%d,...}}} both={[{A=%d,...}]={A=1,...}}", i, i, i, i)
		far(map[[200]byte]int{{byte(i)}: 3}, map[int][17]wide{i: {{A: i}}}, map[wide]wide{{A: i}: {A: 1}})
		things := []any{[1]string{"q"}, [2]int8{1, -2}, [0]int{}}
		shown := []string{`[1]string({"q"})`, "[2]int8({1,-2})", "[0]int({})"}
		tell(`anything v=%s list={{"a","%d"}}`, shown[i], i)
		anything(things[i], [][2]string{{"a", fmt.Sprint(i)}})
		// More than is recorded of a value that isn't described element by element.
		many := []any{&[5000]byte{7}, [5000]byte{8}, &[1000]int{9}}
		tell(`anything v=%s list={}`, []string{"*[5000]uint8({7,...})", "[5000]uint8({8,...})", "*[1000]int({9,...})"}[i])
		anything(many[i], nil)
		tell("instead n=%d a=%d b=%d", i, i+1, i)
		instead(i, i+1, i, errors.New("e"), nil)
		c := make(chan struct{}, 4)
		c <- struct{}{}
		tell("empty none={} zero={} p={None={},B=%d,Zero={}} list={{},{}} c={{}}", i)
		empty(struct{}{}, [0]int{}, padded{B: i}, make([]struct{}, 2), c)
		longer([100]int16{99: 1})
		x := nested{Z: i}
		x.N, x.I.S, x.I.K = 5+i, "in", -3
		tell(`pieces x.inner.N=%d x.inner.I.S="in" x.inner.I.K=-3 x.Z=%d x.Zero={}`, 5+i, i)
		pieces(x)
		tell("bare x={None={},B=%d,Zero={}}", i)
		bare(padded{B: i})
		early(2 + i)
		around := make(chan int, 3)
		around <- 1
		around <- i
		around <- 5
		<-around
		around <- 7
		closed := make(chan int, 1)
		closed <- 9
		close(closed)
		tell("channels none=nil c={%d,5,7} closed={9} list={nil,{}}", i)
		channels(nil, around, closed, []chan int8{nil, make(chan int8)})
		tell("deferred m=%d out=%d last=%q err=%s", i, []int{12, 11, 12}[i], []string{"abcd!", "abcd", "abcd!"}[i], []string{"nil", `main.failure("recovered")`, "nil"}[i])
		deferred(i, "abcd")
		target.N += sums(i)
		target.N += shorter([]any{i, "text"})
	}
	use(&target)
}
