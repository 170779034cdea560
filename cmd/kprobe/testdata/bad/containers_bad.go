// Go's strings, slices, maps and interfaces with words that are wrong: a function
// see_NAME is called with each, and looks at none of it.
package main

import (
	"fmt"
	"runtime/debug"
	"unsafe"
)

// hdr is a slice; its first words are a string or an interface.
type hdr struct{ p, n, c uintptr }

//go:noinline
func see_ints(x []int) { fmt.Print("") }

//go:noinline
func see_bytes(a int, x []byte) { fmt.Print("") }

type holds struct {
	n int
	x []uint16
}

//go:noinline
func see_held(x *holds) { fmt.Print("") }

//go:noinline
func see_text(x string) { fmt.Print("") }

//go:noinline
func see_strings(x []string) { fmt.Print("") }

//go:noinline
func see_map(x map[string]int) { fmt.Print("") }

//go:noinline
func see_any(x any) { fmt.Print("") }

//go:noinline
func see_err(x error) { fmt.Print("") }

func main() {
	debug.SetGCPercent(-1) // the collector would follow the words
	l := []int{1, 2, 3}
	see_ints(nil)
	see_ints([]int{})
	var fine = hdr{uintptr(unsafe.Pointer(&l[0])), 100, 3}
	see_ints(*(*[]int)(unsafe.Pointer(&fine)))
	h := holds{1, []uint16{1, 2, 3, 4}[:3]}
	for _, c := range []uintptr{4, 3, 2, 0, 1 << 63} { // of three elements
		(*hdr)(unsafe.Pointer(&h.x)).c = c
		see_held(&h)
		b := hdr{uintptr(unsafe.Pointer(&l[0])), 3, c}
		see_bytes(1, *(*[]byte)(unsafe.Pointer(&b)))
	}
	for _, h := range []hdr{{8, 5, 5}, {0, 3, 3}, {uintptr(unsafe.Pointer(&l[0])), 1 << 62, 0}, {^uintptr(0), 5, 5}, {uintptr(unsafe.Pointer(&l[0])), ^uintptr(0), 3}} {
		see_strings(*(*[]string)(unsafe.Pointer(&h)))
		see_text(*(*string)(unsafe.Pointer(&h)))
	}
	see_map(nil)
	see_map(map[string]int{})
	big := map[string]int{}
	for i := range 100000 {
		big[fmt.Sprint(i)] = i
	}
	see_map(big)
	m := map[string]int{"a": 1, "b": 2}
	for i := range 6 {
		w := *(*unsafe.Pointer)(unsafe.Pointer(&m))
		p := (*uintptr)(unsafe.Add(w, 8*i))
		old := *p
		for _, b := range []uintptr{1, 1 << 62, ^uintptr(0), 0x1000} {
			*p = b
			see_map(m)
		}
		*p = old
	}
	for _, h := range []hdr{{0, 0, 0}, {8, 8, 0}, {^uintptr(0), 1, 0}, {uintptr(unsafe.Pointer(&l[0])), 1, 0}} {
		see_any(*(*any)(unsafe.Pointer(&h)))
		see_err(*(*error)(unsafe.Pointer(&h)))
	}
	fmt.Println("unharmed")
}
