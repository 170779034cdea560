package main

import "fmt"

type blanks struct {
	A int
	_ int32
	_ int32
	B string
	_ [3]byte
}

type small struct{ _, _, X int8 }

// Several blank members of a structure: whole, in containers, and in registers, where only a name tells members apart.
//
// probe: p:blank main.blank pa=p.A $params
//
//go:noinline
func blank(v blanks, list []blanks, m map[string]small, p *blanks, w small) {
	one := func(v blanks) string { return fmt.Sprintf(`{"A":%d,"_":0,"_#2":0,"B":%q,"_#3":[0,0,0]}`, v.A, v.B) }
	fmt.Printf("=blank {\"v\":%s,\"list\":[%s,%s],\"m\":{\"k\":{\"_\":0,\"_#2\":0,\"X\":%d}},\"pa\":%d,\"w.X\":%d}\n", one(v), one(list[0]), one(list[1]), m["k"].X, p.A, w.X)
}

func main() {
	for i := range 3 {
		v := blanks{A: i, B: "b"}
		blank(v, []blanks{v, {A: -i}}, map[string]small{"k": {X: 3}}, &v, small{X: int8(i)})
	}
}
