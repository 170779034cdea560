package fetch

import (
	"encoding/binary"
	"testing"
)

// goTexts lays texts of Go and tables of them in memory.
type goTexts struct {
	b    []byte
	base uint64
}

func (g *goTexts) put(b []byte) uint64 {
	for len(g.b)%8 != 0 {
		g.b = append(g.b, 0xee)
	}
	at := g.base + uint64(len(g.b))
	g.b = append(g.b, b...)
	return at
}

func (g *goTexts) word(b []byte, off int, v uint64) { binary.LittleEndian.PutUint64(b[off:], v) }

func (g *goTexts) text(b []byte, off int, s string) {
	g.word(b, off, g.put([]byte(s)))
	g.word(b, off+8, uint64(len(s)))
}

// list lays a slice of pairs, and gives its header's address.
func (g *goTexts) list(n int, pairs ...string) uint64 {
	b := make([]byte, len(pairs)*goText)
	for i, s := range pairs {
		g.text(b, i*goText, s)
	}
	head := make([]byte, 24)
	g.word(head, 0, g.put(b))
	g.word(head, 8, uint64(n))
	return g.put(head)
}

// bucket lays eight pairs at most, and what they lead to.
func (g *goTexts) bucket(next uint64, pairs ...string) []byte {
	b := make([]byte, bucketSize)
	for i := 0; i+1 < len(pairs); i += 2 {
		b[i/2] = 0x80
		g.text(b, bucketKeys+i/2*goText, pairs[i])
		g.text(b, bucketValues+i/2*goText, pairs[i+1])
	}
	g.word(b, bucketOver, next)
	return b
}

// goMap lays a map of before Go 1.24, and gives the address of the word that it is.
func (g *goTexts) goMap(b byte, buckets, old uint64) uint64 {
	head := make([]byte, 48)
	head[goMapB] = b
	g.word(head, goMapBuckets, buckets)
	g.word(head, goMapOld, old)
	word := make([]byte, 8)
	g.word(word, 0, g.put(head))
	return g.put(word)
}

func TestLabel(t *testing.T) {
	g := &goTexts{base: 0x10000}
	two := g.list(2, "user", "me", "trace_id", "t1")
	many := g.list(65, append(make([]string, 128), "last", "v")...)
	far := g.list(1<<40, "user", "me")
	empty := g.list(0)
	small := g.goMap(0, g.put(g.bucket(0, "user", "me", "trace_id", "t2")), 0)
	over := g.put(g.bucket(0, "far", "behind"))
	large := g.goMap(1, g.put(append(g.bucket(0, "a", "1"), g.bucket(over, "b", "2")...)), g.put(g.bucket(0, "left", "old")))
	wild := g.goMap(63, 0x10000, 0)
	round := g.put(g.bucket(0))
	binary.LittleEndian.PutUint64(g.b[round-g.base+bucketOver:], round)
	ring := g.goMap(0, round, 0)
	for _, c := range []struct {
		form uint64
		at   uint64
		name string
		want string
	}{
		{LabelList, two, "user", "me"}, {LabelList, two, "trace_id", "t1"}, {LabelList, two, "trace_ix", ""}, {LabelList, two, "use", ""},
		{LabelList, many, "last", ""}, {LabelList, far, "user", "me"}, {LabelList, far, "none", ""},
		{LabelList, empty, "user", ""}, {LabelList, 0, "user", ""},
		{LabelMap, small, "user", "me"}, {LabelMap, small, "trace_id", "t2"}, {LabelMap, small, "no", ""},
		{LabelMap, large, "a", "1"}, {LabelMap, large, "b", "2"}, {LabelMap, large, "far", "behind"}, {LabelMap, large, "left", "old"}, {LabelMap, large, "c", ""},
		{LabelMap, wild, "a", ""}, {LabelMap, ring, "a", ""}, {LabelMap, 0, "a", ""},
	} {
		e := &evaluator{c: &Context{Mem: &stackMemory{base: g.base, b: g.b}}}
		at, ok := e.label(&Step{Op: StepLabel, Imm: c.form, Text: c.name}, c.at)
		got := ""
		if ok {
			head := g.b[at-g.base:]
			from, n := binary.LittleEndian.Uint64(head)-g.base, binary.LittleEndian.Uint64(head[8:])
			got = string(g.b[from : from+n])
		}
		if got != c.want || ok != (c.want != "") {
			t.Errorf("%d %#x %s: %q, %v, want %q", c.form, c.at, c.name, got, ok, c.want)
		}
	}
}
