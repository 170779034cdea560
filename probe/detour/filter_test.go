package detour

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"kprobe/fetch"
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// What the random cases rarely reach.
func TestOracleFilters(t *testing.T) {
	texts := []string{"abc", "", "a", "abcabcabd", "xabcx", "[a", "a]b", `a\b`, "a*b", "long text of more than eight bytes", "\xff\xfe"}
	patterns := []string{"*", "**", "abc", "a*", "*c", "*abd", "a*b*d", "*abc*abd", "?", "a?c", "[a-c]*", "[!a-c]*", "[]]*", "[a", "*[]]b", `a\*b`, `*\`,
		`a\b`, "*bytes", "long*more*eight*", "[!]x]", "[a-]*", "*[\x80-\xff]*", "??????????*", "*abcabd", "a*a*a*a*a*"}
	floats := []float64{0, math.Copysign(0, -1), 1, -1, 1.5, math.Inf(1), math.Inf(-1), math.NaN(), math.MaxFloat32, -math.MaxFloat32,
		math.SmallestNonzeroFloat32, math.MaxFloat64, math.SmallestNonzeroFloat64, 1e-40, 0.1}
	literals := []string{"0", "1", "-1", "1.5", "0.1", "1e39", "-1e39", "1e-45", "3e-46", "3.4028234663852886e38", "3.4028235e38"}
	var defs []string
	var regs []fetch.Regs
	m := newMachine(t, len(texts)*(len(patterns)+2)+len(floats)*len(literals)*12, 4<<20)
	add := func(def string, r fetch.Regs) {
		r.GPR[fetch.SP] = stackAt + 4096
		r.Flags = 2
		defs, regs = append(defs, def), append(regs, r)
	}
	for i, s := range texts {
		var r fetch.Regs
		r.GPR[fetch.DI] = dataAt + dataSize - uint64(len(s)) - 1 // up to a hole
		if i%2 == 0 {
			r.GPR[fetch.DI] = dataAt + 100*uint64(i) + 3
		}
		if i%2 == 1 {
			r.GPR[fetch.DI] = dataAt + 4096*uint64(i) - uint64(len(s)) - 1
		}
		copy(m.at(r.GPR[fetch.DI]), s+"\x00")
		for _, p := range patterns {
			add(fmt.Sprintf("p f a=+0(%%di):string if a ~ %q", p), r)
		}
		add(`p f a=+0(%di):string if a == "abcabcabd"`, r)
		add(`p f a=+0(%di):string if a != "abc"`, r)
	}
	for _, v := range floats {
		var r fetch.Regs
		r.GPR[fetch.DI] = math.Float64bits(v)
		r.GPR[fetch.SI] = uint64(math.Float32bits(float32(v))) | 0xdead<<32
		for _, l := range literals {
			for _, op := range []string{"==", "!=", "<", "<=", ">", ">="} {
				add("p f a=%di:f64 if a "+op+" "+l, r)
				add("p f a=%si:f32 if a "+op+" "+l, r)
			}
		}
	}
	cases, passed := 0, 0
	for i, def := range defs {
		prog, err := compile(def)
		if err != nil {
			t.Logf("%s: %v", def, err)
			continue
		}
		d, err := m.place(func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
			return Build(base, m.params(), []Probe{{ID: 1, Program: prog, CountOnly: true}}, tail)
		})
		if err != nil {
			t.Fatalf("%s: %v", def, err)
		}
		m.setCase(cases, d.Base, &regs[i], &fetch.Vector{})
		defs[cases], regs[cases] = def, regs[i]
		cases++
	}
	m.watch = cpusAt + ring.CountersOff + ring.CounterSize + ring.CounterFiltered
	m.run(cases)
	before := uint64(0)
	for i := range cases {
		prog, _ := compile(defs[i])
		_, pass := prog.Eval(&fetch.Context{Regs: &regs[i], Mem: m}, nil)
		now := binary.LittleEndian.Uint64(m.at(caseAt + uint64(i)*caseSize)[caseHead:])
		if got := now == before; got != pass {
			t.Errorf("%s with %#x: passes %v, want %v", defs[i], regs[i].GPR[fetch.DI], got, pass)
		}
		if pass {
			passed++
		}
		before = now
	}
	if cases < len(defs)*3/4 || passed < cases/5 || passed > cases*4/5 {
		t.Errorf("%d of %d cases, %d pass", cases, len(defs), passed)
	}
}
