package asm

import (
	"bytes"
	"errors"
	"testing"
)

func TestLabels(t *testing.T) {
	for _, tt := range []struct {
		name string
		emit func(c *Code)
		want []byte
		err  error
	}{
		{"forward rel32", func(c *Code) {
			l := c.NewLabel()
			c.Jmp(l)
			c.Jcc(E, l)
			c.Int3()
			c.Bind(l)
		}, []byte{0xe9, 7, 0, 0, 0, 0x0f, 0x84, 1, 0, 0, 0, 0xcc}, nil},
		{"forward rel8", func(c *Code) {
			l := c.NewLabel()
			c.JccShort(NE, l)
			c.Nop(127)
			c.Bind(l)
		}, append([]byte{0x75, 127}, nops(127)...), nil},
		{"forward rel8 too far", func(c *Code) {
			l := c.NewLabel()
			c.JmpShort(l)
			c.Nop(128)
			c.Bind(l)
		}, nil, ErrRange},
		{"backward becomes short at -128", func(c *Code) {
			l := c.Mark()
			c.Nop(126)
			c.Jmp(l)
		}, append(nops(126), 0xeb, 0x80), nil},
		{"backward stays near at -129", func(c *Code) {
			l := c.Mark()
			c.Nop(127)
			c.Jcc(A, l)
		}, append(nops(127), 0x0f, 0x87, 0x7b, 0xff, 0xff, 0xff), nil},
		{"memory at a label, immediate behind the displacement", func(c *Code) {
			l := c.NewLabel()
			c.OpMemImm(Cmp, W32, Rel(l), 0x1000)
			c.Bind(l)
		}, []byte{0x81, 0x3d, 0, 0, 0, 0, 0, 0x10, 0, 0}, nil},
		{"unbound", func(c *Code) { c.Jmp(c.NewLabel()) }, nil, ErrUnbound},
		{"bound twice", func(c *Code) { c.Bind(c.Mark()) }, nil, ErrUnbound},
		{"label of nobody", func(c *Code) { c.Jmp(7) }, nil, ErrUnbound},
		{"zero label", func(c *Code) { c.Bind(0) }, nil, ErrUnbound},
		{"address out of reach", func(c *Code) { c.JmpAddr(1 << 40) }, nil, ErrRange},
		{"operand out of reach", func(c *Code) { c.Lea(AX, RelAddr(1<<32)) }, nil, ErrRange},
		{"data", func(c *Code) { c.Raw(1); c.Align(8, 0xcc); c.Data64(2); c.Data32(3) },
			[]byte{1, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := New(testBase)
			tt.emit(c)
			b, err := c.Bytes()
			if !errors.Is(err, tt.err) || !bytes.Equal(b, tt.want) {
				t.Errorf("% x, %v; want % x, %v", b, err, tt.want, tt.err)
			}
		})
	}
}

func nops(n int) []byte {
	c := New(0)
	c.Nop(n)
	b, _ := c.Bytes()
	return b
}

func TestNoSuchForm(t *testing.T) {
	for name, emit := range map[string]func(c *Code){
		"index sp":      func(c *Code) { c.Load(W64, AX, Indexed(BX, SP, 1, 0)) },
		"scale 3":       func(c *Code) { c.Load(W64, AX, Indexed(BX, CX, 3, 0)) },
		"no registers":  func(c *Code) { c.Load(W64, AX, Indexed(NoReg, NoReg, 1, 0)) },
		"register 16":   func(c *Code) { c.Mov(W64, 16, AX) },
		"register 16rm": func(c *Code) { c.Mov(W64, AX, 16) },
		"load to 16":    func(c *Code) { c.Load(W64, 16, At(AX, 0)) },
		"base 20":       func(c *Code) { c.Load(W64, AX, At(20, 0)) },
		"push none":     func(c *Code) { c.Push(NoReg) },
		"bswap16":       func(c *Code) { c.Bswap(W16, AX) },
		"xmm16":         func(c *Code) { c.MovFromXMM(W64, AX, 16) },
		"movb xmm":      func(c *Code) { c.MovFromXMM(W8, AX, 1) },
		"segment 6":     func(c *Code) { c.MovSeg(AX, 6) },
		"imul8":         func(c *Code) { c.Imul(W8, AX, CX) },
		"imul16 imm":    func(c *Code) { c.ImulImm(W16, AX, CX, 1) },
		"cmov8":         func(c *Code) { c.Cmov(E, W8, AX, CX) },
	} {
		c := New(0)
		emit(c)
		if b, err := c.Bytes(); !errors.Is(err, ErrForm) {
			t.Errorf("%s: % x, %v; want ErrForm", name, b, err)
		}
	}
}

// Code that was already asked for may go on growing.
func TestGrowsAfterBytes(t *testing.T) {
	c := New(testBase)
	l := c.Mark()
	c.Jmp(l)
	if b, err := c.Bytes(); err != nil || len(b) != 2 {
		t.Fatal(b, err)
	}
	c.Jmp(l)
	b, err := c.Bytes()
	if want := []byte{0xeb, 0xfe, 0xeb, 0xfc}; err != nil || !bytes.Equal(b, want) {
		t.Errorf("% x, %v; want % x", b, err, want)
	}
	if off, ok := c.Offset(l); off != 0 || !ok || c.Here() != testBase+4 || c.Base() != testBase || c.Len() != 4 {
		t.Errorf("offset %d %v, here %#x", off, ok, c.Here())
	}
}

// Every operand of memory in every combination decodes to one instruction of
// the length emitted: checked by the shape of ModRM and SIB.
func FuzzMemory(f *testing.F) {
	f.Add(uint8(4), uint8(5), uint8(3), int32(-129), uint8(9))
	f.Add(uint8(13), uint8(0xff), uint8(0), int32(0), uint8(4))
	f.Fuzz(func(t *testing.T, base, index, scale uint8, disp int32, reg uint8) {
		m := Indexed(Reg(base), Reg(index), 1<<(scale&3), disp)
		c := New(0)
		c.Load(W64, Reg(reg), m)
		b, err := c.Bytes()
		bad := m.check(Reg(reg)) != nil
		if bad != (err != nil) {
			t.Fatalf("%+v: %v", m, err)
		}
		if bad {
			return
		}
		mod, rm := b[2]>>6, b[2]&7
		want := 3
		if rm == 4 {
			want++
			if mod == 0 && b[3]&7 == 5 {
				want += 4
			}
		} else if mod == 0 && rm == 5 {
			t.Fatalf("%+v became RIP-relative: % x", m, b)
		}
		want += []int{0, 1, 4}[mod]
		if len(b) != want || mod == 3 {
			t.Fatalf("%+v: % x", m, b)
		}
	})
}

// Code that is emitted again has the same instructions, and its forward branches
// are short where they reach.
func TestAgain(t *testing.T) {
	for _, tt := range []struct {
		name string
		emit func(c *Code)
		want []byte
	}{
		{"both forms", func(c *Code) {
			l := c.NewLabel()
			c.Jmp(l)
			c.Jcc(E, l)
			c.Int3()
			c.Bind(l)
		}, []byte{0xeb, 3, 0x74, 1, 0xcc}},
		{"at the limit", func(c *Code) {
			l := c.NewLabel()
			c.Jcc(NE, l)
			c.Nop(127)
			c.Bind(l)
		}, append([]byte{0x75, 127}, nops(127)...)},
		{"beyond it", func(c *Code) {
			l := c.NewLabel()
			c.Jcc(NE, l)
			c.Nop(128)
			c.Bind(l)
		}, append([]byte{0x0f, 0x85, 128, 0, 0, 0}, nops(128)...)},
		{"near because others are", func(c *Code) {
			l, m := c.NewLabel(), c.NewLabel()
			c.Jmp(l) // over 126 bytes once the next is short
			c.Jcc(A, m)
			c.Nop(124)
			c.Bind(m)
			c.Bind(l)
		}, append([]byte{0xeb, 126, 0x77, 124}, nops(124)...)},
		{"an alignment may grow", func(c *Code) {
			l := c.NewLabel()
			c.Jmp(l)
			c.Nop(11)
			c.Align(16, 0xcc) // nothing, but three bytes once the jump is short
			c.Nop(112)
			c.Bind(l)
		}, append(append([]byte{0xe9, 123, 0, 0, 0}, nops(11)...), nops(112)...)},
		{"over an alignment", func(c *Code) {
			l := c.NewLabel()
			c.Jmp(l)
			c.Align(16, 0xcc)
			c.Bind(l)
		}, append([]byte{0xeb, 14}, bytes.Repeat([]byte{0xcc}, 14)...)},
		{"nothing forward", func(c *Code) { c.Jmp(c.Mark()) }, []byte{0xeb, 0xfe}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := New(testBase)
			tt.emit(c)
			if _, err := c.Bytes(); err != nil {
				t.Fatal(err)
			}
			d := c.Again()
			tt.emit(d)
			b, err := d.Bytes()
			if err != nil || !bytes.Equal(b, tt.want) {
				t.Errorf("% x, %v; want % x", b, err, tt.want)
			}
		})
	}
}

// Other instructions than the first time are found out.
func TestAgainDiffers(t *testing.T) {
	emit := func(c *Code, n int) error {
		l := c.NewLabel()
		c.Jmp(l)
		c.Nop(n)
		c.Bind(l)
		_, err := c.Bytes()
		return err
	}
	c := New(testBase)
	if err := emit(c, 100); err != nil {
		t.Fatal(err)
	}
	if err := emit(c.Again(), 200); !errors.Is(err, ErrRange) {
		t.Errorf("%v, want ErrRange", err)
	}
}
