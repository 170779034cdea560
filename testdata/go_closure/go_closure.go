// Closures that change what they captured. Before each call the program tells what the
// closure finds at its entry.
package main

import "fmt"

type wide struct{ A, B, C, D, E, F int }

var kept any

//go:noinline
func keep(p any) { kept = p }

//go:noinline
func each(list []int, f func(v int), before func(v int)) {
	for _, v := range list {
		before(v)
		f(v)
	}
}

//go:noinline
func sum(list []int, scale int, name string, w wide) int {
	total, label := 0, name
	each(list, func(v int) {
		keep(w) // first, while the closure's address is where the entry has it
		total += v * scale
		label += "x"
		if v > 100 {
			keep(name)
		}
	}, func(v int) {
		fmt.Printf("v=%d total=%d scale=%d label=%q name=%q\n", v, total, scale, label, name)
	})
	return total + len(label)
}

func main() {
	sum([]int{1, 2, 101}, 3, "abc", wide{1, 2, 3, 4, 5, 6})
	sum([]int{4}, -1, "", wide{C: 7})
}
