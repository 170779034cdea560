package detour

import (
	"fmt"
	"slices"
	"testing"

	"kprobe/fetch"
	"kprobe/probe/asm"
)

// TestLabel compares what detours find in a goroutine's labels with what the interpreter
// does, in lists that are whole, of other names, or lead nowhere: where loads that fault
// are repaired, and where the kernel is asked before.
func TestLabel(t *testing.T) {
	const (
		texts, pairs, odd, lists = dataAt, dataAt + 0x400, dataAt + 0x600, dataAt + 0x800
		nowhere                  = dataAt + dataSize + 0x1000
	)
	names := []string{"id", "user", "trace_id", "a.longer/name-of-20."}
	for _, careful := range []bool{false, true} {
		t.Run(fmt.Sprintf("careful %v", careful), func(t *testing.T) {
			type todo struct {
				prog *fetch.Program
				regs fetch.Regs
				list string
			}
			var cases []todo
			const n = 64
			m := newMachine(t, n, n*8192)
			if careful {
				m.carefully()
			}
			at := uint64(texts)
			for i, name := range names {
				copy(m.at(at), name)
				copy(m.at(at+0x40), fmt.Sprintf("value %d", i))
				pair := uint64(pairs + i*fetch.LabelPair)
				m.put64(pair, at)
				m.put64(pair+8, uint64(len(name)))
				m.put64(pair+fetch.LabelValue, at+0x40)
				m.put64(pair+fetch.LabelValue+8, 7)
				at += 0x80
			}
			m.put64(odd, nowhere)
			m.put64(odd+8, uint64(len(names[0])))
			heads := map[string][2]uint64{
				"whole": {pairs, uint64(len(names))}, "short": {pairs, 1}, "empty": {pairs, 0}, "no list": {0, 0},
				"nowhere": {nowhere, 3}, "odd": {odd, 1}, "edge": {dataAt + dataSize - 8, 1}, "half": {pairs + 3*fetch.LabelPair, 1}, "beyond": {pairs + uint64(len(names))*fetch.LabelPair, 60},
			}
			list := uint64(lists)
			for _, what := range slices.Sorted(func(yield func(string) bool) {
				for k := range heads {
					if !yield(k) {
						return
					}
				}
			}) {
				m.put64(list, heads[what][0])
				m.put64(list+8, heads[what][1])
				for _, name := range append([]string{"none"}, names...) {
					prog := must(t, "p f a=+0(%di):string")
					a, label := &prog.Args[0], fetch.Step{Op: fetch.StepLabel, Imm: fetch.LabelList, Text: name}
					load := fetch.Step{Op: fetch.StepLoad, Size: 8}
					computed := fetch.Chain{Source: fetch.SourceComputed, From: fetch.SourceReg, Reg: fetch.DI}
					a.Chain, a.Store = computed, fetch.StoreCounted
					a.Steps = []fetch.Step{label, load}
					a.Len = &computed
					a.Len.Steps = []fetch.Step{label, {Op: fetch.StepAdd, Imm: 8}, load}
					c := todo{prog: prog, list: what + " " + name}
					c.regs.GPR[fetch.DI] = list
					c.regs.GPR[fetch.SP] = stackAt + uint64(len(cases))*stackSize + stackSize/2
					cases = append(cases, c)
				}
				list += 16
			}
			for i := range cases {
				c := &cases[i]
				d, err := m.place(func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
					return Build(base, m.params(), []Probe{{ID: uint32(i + 1), Program: c.prog}}, tail)
				})
				if err != nil {
					t.Fatalf("%s: %v", c.list, err)
				}
				m.setCase(i, d.Base, &c.regs, &fetch.Vector{})
			}
			tid := m.run(len(cases))
			var head uint64
			var total tally
			for i := range cases {
				c := &cases[i]
				m.checkCase(i)
				want, _ := c.prog.Eval(&fetch.Context{Regs: &c.regs, Mem: m, PID: m.params().PID, TID: tid}, nil)
				now := m.get64(caseAt + uint64(i)*caseSize + caseHead)
				if !oracleRecord(t, c.prog, m.at(ringAt + head&(testRing-1))[:now-head], uint32(i+1), tid, want, &total) {
					t.Errorf("%s", c.list)
				}
				head = now
			}
			if t.Logf("%+v", total); total.texts != 6 || total.faults != len(cases)-6 {
				t.Errorf("the cases don't reach everything: %+v", total)
			}
		})
	}
}
