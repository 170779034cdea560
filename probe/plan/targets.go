package plan

import (
	"runtime"
	"slices"
	"sync"

	"kprobe/probe/insn"
)

// Targets is a set of addresses that code leads to.
type Targets struct{ addrs []uint64 }

// ScanTargets collects the targets of a module's direct branches from one function into
// another, including cold parts, and the functions' starts. text are the original bytes from
// base on, funcs the functions. Addresses outside text are left out, and so are branches within
// a function, which FromSweep finds. The sweep of each function is linear. Data among its code
// may add addresses to which nothing leads, which only costs tactics.
func ScanTargets(text []byte, base uint64, funcs []Range) *Targets {
	parts := min(runtime.GOMAXPROCS(0), len(funcs)/1000+1)
	found := make([]Targets, parts)
	var wg sync.WaitGroup
	for p := range parts {
		wg.Go(func() {
			found[p].scan(text, base, funcs[len(funcs)*p/parts:len(funcs)*(p+1)/parts])
		})
	}
	wg.Wait()
	t := &Targets{}
	for p := range found {
		t.addrs = append(t.addrs, found[p].addrs...)
	}
	t.compact()
	return t
}

func (t *Targets) scan(text []byte, base uint64, funcs []Range) {
	end := base + uint64(len(text))
	for _, f := range funcs {
		lo, hi := f.Lo, min(f.Hi, end)
		if lo < base || lo >= end {
			continue
		}
		t.addrs = append(t.addrs, lo)
		for at := lo; at < hi; {
			code := text[at-base:]
			i, err := insn.DecodePart(code)
			if err != nil {
				at++
				continue
			}
			if to, ok := i.Target(at, code); ok && (to < lo || to >= hi) && to >= base && to < end {
				t.addrs = append(t.addrs, to)
			}
			at += uint64(i.Len)
		}
	}
	t.compact()
}

// Add adds further addresses: landing pads, entries of tables.
func (t *Targets) Add(addrs ...uint64) {
	t.addrs = append(t.addrs, addrs...)
	t.compact()
}

// Has reports whether an address is in the set.
func (t *Targets) Has(addr uint64) bool {
	_, ok := slices.BinarySearch(t.addrs, addr)
	return ok
}

// Len is the number of addresses.
func (t *Targets) Len() int { return len(t.addrs) }

func (t *Targets) compact() {
	slices.Sort(t.addrs)
	t.addrs = slices.Compact(t.addrs)
}
