package unwind

import (
	"encoding/binary"
	"testing"
)

// words is a stack of words from base on.
func words(base uint64, list ...uint64) *Stack {
	s := &Stack{Base: base}
	for _, w := range list {
		s.Bytes = binary.LittleEndian.AppendUint64(s.Bytes, w)
	}
	return s
}

func TestCaller(t *testing.T) {
	mem := words(0x1000, 11, 22, 33, 0x401234, 55, 0)
	row := Row{CFA: Rule{Kind: InRegister, Reg: SP, Off: 32}}
	row.Regs[PC] = Rule{Kind: AtCFA, Off: -8}
	row.Regs[6] = Rule{Kind: AtCFA, Off: -24}
	row.Regs[3] = Rule{Kind: InRegister, Reg: 12, Off: 4}
	row.Regs[13] = Rule{Kind: Undefined}
	row.Regs[14] = Rule{Kind: IsCFA, Off: 8}
	row.Regs[15] = Rule{Kind: IsExpr, Expr: []byte{opPlusUconst, 3}} // the CFA is on the stack
	row.Regs[5] = Rule{Kind: AtExpr, Expr: []byte{opPlusUconst, 0x70}}
	var r Regs
	for n := range 16 {
		r.Set(n, uint64(n)<<8)
	}
	r.Set(SP, 0x1000)
	start := r
	if end := row.Caller(&r, mem); end != Going {
		t.Fatalf("it ended: %d", end)
	}
	want := map[uint64]uint64{PC: 0x401234, SP: 0x1020, 6: 22, 3: 12<<8 + 4, 14: 0x1028, 15: 0x1023, 12: 12 << 8}
	for n, v := range want {
		if got, ok := r.Get(n); !ok || got != v {
			t.Errorf("register %d: %#x %v, want %#x", n, got, ok, v)
		}
	}
	for _, n := range []uint64{13, 5, Columns} {
		if v, ok := r.Get(n); ok {
			t.Errorf("register %d is known: %#x", n, v)
		}
	}
	for _, c := range []struct {
		change func(*Row, *Regs)
		want   End
	}{
		{func(w *Row, _ *Regs) { w.Regs[PC].Off = 24 }, Missing},
		{func(w *Row, _ *Regs) { w.Regs[PC].Kind = Undefined }, Outmost},
		{func(w *Row, _ *Regs) { w.Regs[PC].Kind = Unspecified }, Outmost},
		{func(w *Row, _ *Regs) { w.Regs[PC].Off = 8 }, Outmost}, // 0
		{func(_ *Row, r *Regs) { r.Known &^= 1 << SP }, Unknown},
		{func(w *Row, _ *Regs) { w.CFA = Rule{Kind: IsExpr, Expr: []byte{0xe0}} }, Unknown},
	} {
		w, r := row, start
		c.change(&w, &r)
		before := r
		if end := w.Caller(&r, mem); end != c.want || r != before {
			t.Errorf("%+v: ended with %d, want %d", w, end, c.want)
		}
	}
}

func TestExpressions(t *testing.T) {
	mem := words(0x2000, 0x1122334455667788, 2)
	var regs Regs
	regs.Set(7, 0x2000)
	regs.Set(16, 0x1b)
	for _, c := range []struct {
		code []byte
		want uint64
		end  End
	}{
		// A lazy-binding stub's: rsp + 8 + ((rip & 15) >= 11) << 3.
		{[]byte{0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22}, 0x2010, Going},
		{[]byte{0x77, 0, 0x06}, 0x1122334455667788, Going},
		{[]byte{0x77, 0, 0x94, 2}, 0x7788, Going},
		{[]byte{0x08, 200}, 200, Going},
		{[]byte{0x09, 200}, ^uint64(55), Going},
		{[]byte{0x0b, 0xfe, 0xff}, ^uint64(1), Going},
		{[]byte{0x11, 0x7f}, ^uint64(0), Going},
		{[]byte{0x35, 0x32, 0x1c}, 3, Going}, // 5 - 2
		{[]byte{0x35, 0x32, 0x16, 0x1c}, ^uint64(2), Going},
		{[]byte{0x31, 0x32, 0x33, 0x17, 0x13}, 1, Going}, // rot: 3 1 2, and 2 dropped
		{[]byte{0x37, 0x30, 0x1b}, 0, Unknown},           // divided by zero
		{[]byte{0x31, 0x28, 1, 0, 0x96, 0x39}, 9, Going}, // bra over a nop
		{[]byte{0x2f, 0xfd, 0xff}, 0, Unknown},           // for ever
		{[]byte{0x2f, 0x00, 0x40, 0x31}, 0, Unknown},     // out of it
		{[]byte{0x12}, 0, Unknown},
		{[]byte{0x22}, 0, Unknown},
		{nil, 0, Unknown},
		{[]byte{0x30, 0x06}, 0, Missing}, // memory that was not copied
		{[]byte{0x76, 0}, 0, Unknown},    // a register that isn't known
	} {
		x := expression{regs: &regs, mem: mem}
		got, end := x.run(c.code)
		if end != c.end || end == Going && got != c.want {
			t.Errorf("% x: %#x, %d; want %#x, %d", c.code, got, end, c.want, c.end)
		}
	}
}

func FuzzExpression(f *testing.F) {
	f.Add([]byte{0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22})
	f.Add([]byte{0x2f, 0xfd, 0xff})
	f.Add([]byte{0x31, 0x12, 0x12, 0x2f, 0xfb, 0xff})
	f.Fuzz(func(_ *testing.T, code []byte) {
		var regs Regs
		regs.Set(7, 0x2000)
		x := expression{regs: &regs, mem: words(0x2000, 1, 2, 3)}
		x.run(code)
	})
}
