package debugreg

import (
	"errors"
	"testing"

	"kprobe/fetch"
	"kprobe/probe/insn"
	"kprobe/symbols"
)

// TestFind: the instruction that accessed memory is told by the registers behind it, and
// none is where another can have.
func TestFind(t *testing.T) {
	const start, data = 0x1000, 0x8000
	regs := func(set func(r *fetch.Regs)) *fetch.Regs {
		r := &fetch.Regs{FSBase: 0x7000}
		r.GPR[insn.RSP] = 0x4000
		set(r)
		return r
	}
	for _, c := range []struct {
		name          string
		code          []byte
		behind        uint64 // offset of the trap
		regs          *fetch.Regs
		did           uint64 // offset of the instruction
		known         bool
		sure          bool
		reads, writes bool
	}{
		{"mov [rdi+8], rax", []byte{0x90, 0x48, 0x89, 0x47, 0x08, 0x90}, 5, regs(func(r *fetch.Regs) { r.GPR[insn.RDI] = data - 8 }), 1, true, true, false, true},
		{"mov elsewhere", []byte{0x90, 0x48, 0x89, 0x47, 0x08, 0x90}, 5, regs(func(r *fetch.Regs) { r.GPR[insn.RDI] = 0x100 }), 5, false, false, true, true},
		{"mov rdi, [rdi]: its base is gone", []byte{0x48, 0x8b, 0x3f, 0x90}, 3, regs(func(r *fetch.Regs) { r.GPR[insn.RDI] = 0x55 }), 0, true, false, true, false},
		{"add qword [rax+rcx*8], 1", []byte{0x48, 0x83, 0x04, 0xc8, 0x01, 0x90}, 5, regs(func(r *fetch.Regs) { r.GPR[insn.RAX], r.GPR[insn.RCX] = data-0x80, 0x10 }), 0, true, true, true, true},
		{"mov fs:[rax], ecx", []byte{0x64, 0x89, 0x08, 0x90}, 3, regs(func(r *fetch.Regs) { r.GPR[insn.RAX] = data - 0x7000 }), 0, true, true, false, true},
		{"push rax", []byte{0x50, 0x90}, 1, regs(func(r *fetch.Regs) { r.GPR[insn.RSP] = data }), 0, true, true, false, true},
		{"pop rax", []byte{0x58, 0x90}, 1, regs(func(r *fetch.Regs) { r.GPR[insn.RSP] = data + 8 }), 0, true, true, true, false},
		{"pop [rdi]", []byte{0x8f, 0x07, 0x90}, 2, regs(func(r *fetch.Regs) { r.GPR[insn.RDI] = data }), 0, true, true, false, true},
		{"push [rdi]", []byte{0xff, 0x37, 0x90}, 2, regs(func(r *fetch.Regs) { r.GPR[insn.RDI] = data }), 0, true, true, true, false},
		{"stosq", []byte{0x48, 0xab, 0x90}, 2, regs(func(r *fetch.Regs) { r.GPR[insn.RDI] = data + 8 }), 0, true, true, false, true},
		{"movsb, its source", []byte{0xa4, 0x90}, 1, regs(func(r *fetch.Regs) { r.GPR[insn.RSI], r.GPR[insn.RDI] = data+1, 0x100 }), 0, true, true, true, false},
		{"rep movsb, in its midst", []byte{0x90, 0xf3, 0xa4, 0x90}, 1, regs(func(r *fetch.Regs) { r.GPR[insn.RSI], r.GPR[insn.RDI] = 0x101, data+1 }), 1, true, true, false, true},
		{"rep movsb, at its end", []byte{0xf3, 0xa4, 0x90}, 2, regs(func(r *fetch.Regs) { r.GPR[insn.RSI], r.GPR[insn.RDI] = 0x101, data+8 }), 0, true, true, false, true},
		{"behind a call", []byte{0xe8, 0, 0, 0, 0, 0x90}, 5, regs(func(r *fetch.Regs) { r.GPR[insn.RSP] = data }), 5, false, false, true, true},
		{"behind what accesses nothing", []byte{0x48, 0x01, 0xc8, 0x90}, 3, regs(func(*fetch.Regs) {}), 3, false, false, true, true},
		{"at the start", []byte{0x48, 0x89, 0x07, 0x90}, 0, regs(func(r *fetch.Regs) { r.GPR[insn.RDI] = data }), 0, false, false, true, true},
	} {
		f, err := insn.Sweep(c.code, start, insn.SweepOptions{})
		if err != nil {
			t.Fatal(err)
		}
		c.regs.IP = start + c.behind
		got := Find(f, Access{Regs: c.regs, Lo: data, Hi: data + 4})
		want := Did{At: symbols.Addr(start + c.did), Reads: c.reads, Writes: c.writes, Known: c.known, Sure: c.sure}
		if got != want {
			t.Errorf("%s: %+v, want %+v", c.name, got, want)
		}
	}
	if got := Find(nil, Access{Regs: &fetch.Regs{IP: 7}}); got.Known || got.At != 7 {
		t.Errorf("without a function: %+v", got)
	}
}

// TestCheck: what can be watched is 1, 2, 4 or 8 bytes at an address divisible by that.
func TestCheck(t *testing.T) {
	for _, c := range []struct {
		at symbols.Addr
		n  int
		ok bool
	}{
		{0x1000, 8, true}, {0x1004, 8, false}, {0x1004, 4, true}, {0x1002, 4, false}, {0x1003, 1, true}, {0x1003, 2, false},
		{0x1000, 3, false}, {0x1000, 16, false}, {0x1000, 0, false}, {0xffffffff81000000, 8, false},
	} {
		err := Check(c.at, c.n)
		var bad *PlaceError
		if (err == nil) != c.ok || err != nil && !errors.As(err, &bad) {
			t.Errorf("%d bytes at %v: %v", c.n, c.at, err)
		}
	}
}
