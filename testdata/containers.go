// Go's own containers, filled at random; the program prints each as kprobe prints
// it, and then calls a function with it.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"time"
)

type point struct {
	X  int16
	Y  int
	On bool
}

type person struct {
	ID     int32
	Name   string
	Scores []int
	By     map[string]int
	Err    error
}

type code int

func (c code) Error() string { return "code" }

type wrapped struct{ p *point }

var r *rand.Rand

func many() int {
	switch r.Intn(6) {
	case 0:
		return 0
	case 1:
		return r.Intn(400)
	}
	return r.Intn(6)
}

func list[T any](make func() T) []T {
	if r.Intn(9) == 0 {
		return nil
	}
	out := []T{}
	for range many() {
		out = append(out, make())
	}
	return out
}

func text() string {
	var b strings.Builder
	for range r.Intn(20) {
		b.WriteByte("abcdef XYZ"[r.Intn(10)])
	}
	return b.String()
}

func number() int { return int(int32(r.Uint32())) }

func mapOf[K comparable, V any](key func() K, val func() V) map[K]V {
	if r.Intn(9) == 0 {
		return nil
	}
	m := map[K]V{}
	for range many() {
		m[key()] = val()
	}
	return m
}

func failure() error {
	switch r.Intn(6) {
	case 0:
		return nil
	case 1:
		return code(r.Intn(100))
	case 2:
		return &fs.PathError{Op: "open", Path: text(), Err: code(2)}
	case 3:
		return fmt.Errorf("while: %w", errors.New("inner"))
	}
	return errors.New(text())
}

func showError(e error) string {
	switch x := e.(type) {
	case nil:
		return "nil"
	case code:
		return fmt.Sprintf("main.code(%d)", x)
	case *fs.PathError:
		return fmt.Sprintf("*io/fs.PathError({Op=%q,Path=%q,Err=%s})", x.Op, x.Path, showError(x.Err))
	}
	if u := errors.Unwrap(e); u != nil {
		return fmt.Sprintf("*fmt.wrapError({msg=%q,err=%s})", e.Error(), showError(u))
	}
	return fmt.Sprintf("*errors.errorString({s=%q})", e.Error())
}

func showAny(v any) string {
	switch x := v.(type) {
	case nil:
		return "nil"
	case int:
		return fmt.Sprintf("int(%d)", x)
	case string:
		return fmt.Sprintf("string(%q)", x)
	case point:
		return "main.point(" + showPoint(x) + ")"
	case *point:
		return "*main.point(" + showPoint(*x) + ")"
	case wrapped:
		return fmt.Sprintf("main.wrapped({p=%p})", x.p)
	case []int:
		return "[]int(" + showInts(x, 1) + ")"
	case map[string]int:
		return "map[string]int(" + showMap(x, 1, quote, strconv.Itoa) + ")"
	case float64:
		return fmt.Sprintf("float64(%v)", x)
	}
	return "?"
}

func anything() any {
	switch r.Intn(9) {
	case 0:
		return nil
	case 1:
		return number()
	case 2:
		return text()
	case 3:
		return point{int16(number()), number(), true}
	case 4:
		return &point{int16(number()), number(), false}
	case 5:
		return wrapped{&point{}}
	case 6:
		return list(number)
	case 7:
		return map[string]int{text(): number()}
	}
	return float64(r.Intn(1000)) / 4
}

func quote(s string) string { return `"` + s + `"` }

func showPoint(p point) string { return fmt.Sprintf("{X=%d,Y=%d,On=%v}", p.X, p.Y, p.On) }

func showList[T any](l []T, depth int, show func(T) string) string {
	if depth >= 3 {
		return "{...}"
	}
	var out []string
	for i, x := range l {
		if i == 8 {
			out = append(out, "...")
			break
		}
		out = append(out, show(x))
	}
	return "{" + strings.Join(out, ",") + "}"
}

func showInts(l []int, depth int) string { return showList(l, depth, strconv.Itoa) }

// Maps have no order: who compares sorts.
func showMap[K comparable, V any](m map[K]V, depth int, key func(K) string, val func(V) string) string {
	if m == nil {
		return "nil"
	}
	var out []string
	for k, v := range m {
		out = append(out, "["+key(k)+"]="+val(v))
	}
	return "{" + strings.Join(out, ",") + "}"
}

//go:noinline
func see_ints(x []int) { keep(x) }

//go:noinline
func see_bytes(x []byte) { keep(x) }

//go:noinline
func see_strings(x []string) { keep(x) }

//go:noinline
func see_points(x []point) { keep(x) }

//go:noinline
func see_lists(x [][]int) { keep(x) }

//go:noinline
func see_map(x map[string]int) { keep(x) }

//go:noinline
func see_mapi(x map[int]point) { keep(x) }

//go:noinline
func see_mapl(x map[string][]int) { keep(x) }

//go:noinline
func see_set(x map[int]struct{}) { keep(x) }

//go:noinline
func see_error(x error) { keep(x) }

//go:noinline
func see_any(x any) { keep(x) }

//go:noinline
func see_anys(x []any) { keep(x) }

//go:noinline
func see_chan(x chan int) { keep(x) }

//go:noinline
func see_chans(x chan string) { keep(x) }

//go:noinline
func see_time(x time.Time) { keep(x) }

//go:noinline
func see_person(x *person) { keep(x) }

//go:noinline
func see_string(x string) { keep(x) }

var kept any

//go:noinline
func keep(v any) { kept = v }

func tell(name, value string) { fmt.Println(name + " x=" + value) }

// small keeps a map's elements so few that all are printed.
func small[K comparable, V any](m map[K]V) map[K]V {
	for k := range m {
		if len(m) <= 8 {
			break
		}
		delete(m, k)
	}
	return m
}

func main() {
	seed, _ := strconv.Atoi(os.Args[1])
	r = rand.New(rand.NewSource(int64(seed)))
	for range 30 {
		l := list(number)
		tell("ints", showInts(l, 0))
		see_ints(l)
		b := list(func() byte { return byte(number()) })
		tell("bytes", showList(b, 0, func(b byte) string { return strconv.Itoa(int(b)) }))
		see_bytes(b)
		s := list(text)
		tell("strings", showList(s, 0, quote))
		see_strings(s)
		p := list(func() point { return point{int16(number()), number(), r.Intn(2) == 0} })
		tell("points", showList(p, 0, showPoint))
		see_points(p)
		ll := list(func() []int { return list(number) })
		tell("lists", showList(ll, 0, func(l []int) string { return showInts(l, 1) }))
		see_lists(ll)
		m := small(mapOf(text, number))
		tell("map", showMap(m, 0, quote, strconv.Itoa))
		see_map(m)
		mi := small(mapOf(number, func() point { return point{int16(number()), number(), true} }))
		tell("mapi", showMap(mi, 0, strconv.Itoa, showPoint))
		see_mapi(mi)
		ml := small(mapOf(text, func() []int { return list(number) }))
		tell("mapl", showMap(ml, 0, quote, func(l []int) string { return showInts(l, 1) }))
		see_mapl(ml)
		ms := small(mapOf(number, func() struct{} { return struct{}{} }))
		tell("set", showMap(ms, 0, strconv.Itoa, func(struct{}) string { return "{}" }))
		see_set(ms)
		e := failure()
		tell("error", showError(e))
		see_error(e)
		a := anything()
		tell("any", showAny(a))
		see_any(a)
		aa := list(anything)
		tell("anys", showList(aa, 0, func(v any) string {
			switch x := v.(type) {
			case []int:
				return "[]int(" + showInts(x, 2) + ")"
			}
			return showAny(v)
		}))
		see_anys(aa)
		c := make(chan int, 12)
		var in []int
		for range r.Intn(20) {
			if len(c) > 0 && r.Intn(3) == 0 || len(c) == cap(c) {
				<-c
				in = in[1:]
				continue
			}
			n := number()
			c <- n
			in = append(in, n)
		}
		tell("chan", showInts(in, 0))
		see_chan(c)
		cs := make(chan string, 2)
		cs <- "one"
		tell("chans", `{"one"}`)
		see_chans(cs)
		now := time.Unix(int64(number())*3, int64(r.Intn(1e9)))
		if r.Intn(2) == 0 {
			now = time.Now()
		}
		tell("time", now.UTC().Format(time.RFC3339Nano))
		see_time(now)
		tell("string", quote("x"+strconv.Itoa(seed)))
		see_string("x" + strconv.Itoa(seed))
	}
}
