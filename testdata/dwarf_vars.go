// A program of Go's variables: strings, slices, interfaces, structures, in
// registers and on the stack.
package main

import (
	"fmt"
	"os"
	"strconv"
)

type point struct{ X, Y int32 }

type request struct {
	Method string
	Path   *string
	Tags   []string
	At     point
	To     *point
	Ok     bool
	Rate   float64
	Any    interface{}
	Codes  [3]int16
}

var sink int

//go:noinline
func scalars(a int8, b uint16, c int64, d bool, e float64, f float32) int {
	local := int(a) + int(c)
	sink = local + int(b)
	if d {
		sink += int(e) + int(f) // line: scalars body
	}
	return local + sink
}

//go:noinline
func text(s string, list []int, r *request) string {
	sink = len(s) + len(list)
	t := s + r.Method // line: text body
	return t
}

//go:noinline
func whole(p point, r request, any interface{}) point {
	q := point{p.Y, p.X}
	sink = int(q.X) + len(r.Tags)
	if any != nil {
		sink++
	}
	return q // line: whole end
}

func main() {
	rounds := 1
	if len(os.Args) > 1 {
		rounds, _ = strconv.Atoi(os.Args[1])
	}
	path := "/index.html"
	for i := 0; i < rounds; i++ {
		r := &request{Method: "GET", Path: &path, Tags: []string{"a", "bc"}, At: point{3, -4}, To: &point{5, 6}, Ok: true, Rate: 0.5, Any: i, Codes: [3]int16{7, -8, 9}}
		sink += scalars(-3, 60000, 1<<40, true, 2.5, 0.25)
		sink += len(text("some text", []int{1, 2, 3}, r))
		sink += int(whole(point{1, 2}, *r, i).X)
	}
	fmt.Println(sink)
}
