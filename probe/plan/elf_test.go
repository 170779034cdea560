package plan

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"io"
	"slices"
	"testing"

	"github.com/go-delve/delve/pkg/dwarf/frame"

	"kprobe/probe/insn"
)

// object is the code of an ELF file, loaded where the kernel would.
type object struct {
	pie   bool
	base  uint64 // .text in memory
	text  []byte
	funcs []Range // in order, not overlapping
	known *Targets
	progs []*elf.Prog
	bias  uint64
	gaps  Gaps
}

// loadObject reads a file's .text and functions, and every direct branch in
// them.
func loadObject(t testing.TB, path string) *object {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	sec := f.Section(".text")
	if sec == nil {
		t.Fatalf("%s has no .text", path)
	}
	o := &object{pie: f.Type == elf.ET_DYN}
	if o.text, err = sec.Data(); err != nil {
		t.Fatal(err)
	}
	bias, end := uint64(0), uint64(0)
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD {
			end = max(end, p.Vaddr+p.Memsz)
		}
	}
	if o.pie {
		bias = 0x555555554000
	}
	o.base, o.bias, o.progs = sec.Addr+bias, bias, f.Progs
	const page, heap = 0xfff, 1 << 30
	o.gaps = Gaps{
		{0x10000, (o.base - sec.Addr%0x1000) &^ page},
		{(end + bias + heap) &^ page, 1<<47 - 1<<30},
	}
	if first := f.Progs[0]; !o.pie && first != nil {
		for _, p := range f.Progs {
			if p.Type == elf.PT_LOAD {
				o.gaps[0].Hi = min(o.gaps[0].Hi, p.Vaddr&^page)
			}
		}
	} else {
		o.gaps[0].Hi = bias - 1<<20
	}
	o.funcs = functions(f, sec)
	for i := range o.funcs {
		o.funcs[i].Lo += bias
		o.funcs[i].Hi += bias
	}
	o.known = ScanTargets(o.text, o.base, o.funcs)
	return o
}

// functions are the ranges of symbols, and of call frame information where
// symbols say nothing.
func functions(f *elf.File, text *elf.Section) []Range {
	var all []Range
	for _, read := range []func() ([]elf.Symbol, error){f.Symbols, f.DynamicSymbols} {
		syms, err := read()
		if err != nil {
			continue
		}
		for _, s := range syms {
			if t := elf.ST_TYPE(s.Info); (t == elf.STT_FUNC || t == elf.STT_GNU_IFUNC) && s.Size > 0 && s.Section != elf.SHN_UNDEF {
				all = append(all, Range{s.Value, s.Value + s.Size})
			}
		}
	}
	if eh := f.Section(".eh_frame"); eh != nil {
		if data, err := eh.Data(); err == nil {
			fdes, err := frame.Parse(data, binary.LittleEndian, 0, 8, eh.Addr)
			if err == nil {
				for _, d := range fdes {
					all = append(all, Range{d.Begin(), d.End()})
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Range) int { return cmp.Compare(a.Lo, b.Lo) })
	var out []Range
	end := text.Addr
	for _, s := range all {
		if s.Lo < end || s.Hi > text.Addr+text.Size {
			continue
		}
		out = append(out, s)
		end = s.Hi
	}
	return out
}

// fn takes the n-th function apart.
func (o *object) fn(n int) *Func { return o.span(n, n) }

// around takes the functions apart that a short jump from the n-th can reach.
func (o *object) around(n int) *Func {
	const reach = 160
	s := o.funcs[n]
	from, to := n, n
	for from > 0 && o.funcs[from-1].Lo+reach > s.Lo {
		from--
	}
	for to+1 < len(o.funcs) && o.funcs[to+1].Lo < s.Hi+reach {
		to++
	}
	return o.span(from, to)
}

func (o *object) span(from, to int) *Func {
	lo, hi := o.funcs[from].Lo, o.funcs[to].Hi
	next := o.base + uint64(len(o.text))
	if to+1 < len(o.funcs) {
		next = o.funcs[to+1].Lo
	}
	off := lo - o.base
	end := min(next-o.base+32, uint64(len(o.text)))
	code := o.text[off:end]
	known := Known{Target: o.known.Has, Next: int(next - lo)}
	f, err := insn.Sweep(code[:hi-lo], lo, insn.SweepOptions{Read: o.read})
	if err != nil {
		return NewFunc(lo, code, int(hi-lo), known)
	}
	return FromSweep(f, code, known)
}

// read reads the file's contents at an address.
func (o *object) read(b []byte, at uint64) error {
	for _, p := range o.progs {
		if lo := p.Vaddr + o.bias; p.Type == elf.PT_LOAD && at >= lo && at-lo+uint64(len(b)) <= p.Filesz {
			_, err := p.ReadAt(b, int64(at-lo))
			return err
		}
	}
	return io.ErrUnexpectedEOF
}
