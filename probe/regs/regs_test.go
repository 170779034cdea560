package regs

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/fetch"
	"kprobe/symbols"
)

var errFault = errors.New("nothing is there")

// memory is a program's, from base on.
type memory struct {
	base symbols.Addr
	b    []byte
}

func (m *memory) at(b []byte, a symbols.Addr) ([]byte, error) {
	if a < m.base || uint64(a-m.base)+uint64(len(b)) > uint64(len(m.b)) {
		return nil, errFault
	}
	return m.b[a-m.base:], nil
}

func (m *memory) ReadMemory(b []byte, a symbols.Addr) (int, error) {
	from, err := m.at(b, a)
	if err != nil {
		return 0, err
	}
	return copy(b, from), nil
}

func (m *memory) WriteMemory(b []byte, a symbols.Addr) error {
	to, err := m.at(b, a)
	copy(to, b)
	return err
}

// thread has vector registers.
type thread struct {
	v     fetch.Vector
	asked int
}

func (t *thread) Vector() (*fetch.Vector, error) {
	t.asked++
	v := t.v
	return &v, nil
}

func handed(t *testing.T, of Of) (*Regs, *memory, *thread) {
	t.Helper()
	space, err := symbols.OpenProcess(os.Getpid(), nil)
	if err != nil {
		t.Fatal(err)
	}
	m, th := &memory{0x10000, make([]byte, 0x3000)}, &thread{}
	binary.LittleEndian.PutUint64(m.b[0x800:], 0x401234)
	binary.LittleEndian.PutUint64(m.b[0x808:], 7)
	of.Memory, of.Thread, of.Space, of.Place = m, th, space, 0x401000
	r := unix.PtraceRegs{Rip: 0x401000, Rsp: 0x10800, Rdi: 1, Rsi: 2, Rdx: 3, Rcx: 4, R8: 5, R9: 6, Rax: 10, Rbx: 20, R10: 30, R11: 40, R15: 50, Eflags: 0x246}
	return New(r, of), m, th
}

// Arguments are where the language's calling convention has them.
func TestArguments(t *testing.T) {
	c, _, _ := handed(t, Of{})
	g, _, _ := handed(t, Of{Go: true})
	for i, want := range []uint64{1, 2, 3, 4, 5, 6} {
		if got := c.Arg(i + 1); got != want {
			t.Errorf("argument %d of C is %d, want %d", i+1, got, want)
		}
	}
	for i, want := range []uint64{10, 20, 4, 1, 2, 5, 6, 30, 40} {
		if got := g.Arg(i + 1); got != want {
			t.Errorf("argument %d of Go is %d, want %d", i+1, got, want)
		}
	}
	c.SetArg(2, 99)
	c.SetRetVal(98)
	if got := Registers(c); got.Rsi != 99 || got.Rax != 98 {
		t.Errorf("changed to %+v", got)
	}
}

// Registers have the names that definitions use, and no others.
func TestNames(t *testing.T) {
	r, _, _ := handed(t, Of{})
	for name, want := range map[string]uint64{"ax": 10, "rax": 10, "r15": 50, "ip": 0x401000, "sp": 0x10800, "rsp": 0x10800, "flags": 0x246} {
		if got, ok := r.Reg(name); !ok || got != want {
			t.Errorf("%s is %#x, %v, want %#x", name, got, ok, want)
		}
	}
	for _, name := range []string{"", "eax", "r16", "rr8", "xmm0"} {
		if r.SetReg(name, 1) {
			t.Errorf("there is a register %q", name)
		}
	}
	if !r.SetReg("rbx", 21) || Registers(r).Rbx != 21 {
		t.Error("bx wasn't changed")
	}
}

// Vector registers are read when they are first asked for, and changed only where the
// handler has set one.
func TestVector(t *testing.T) {
	r, _, th := handed(t, Of{})
	binary.LittleEndian.PutUint64(th.v[3][:], math.Float64bits(2.5))
	if th.asked != 0 {
		t.Error("read though nobody has asked")
	}
	for range 2 {
		if f, err := r.Float(3); err != nil || f != 2.5 || th.asked != 1 {
			t.Errorf("%v, %v, asked %d times", f, err, th.asked)
		}
	}
	if Vector(r) != nil {
		t.Error("changed by reading")
	}
	if err := r.SetFloat(3, -1); err != nil {
		t.Fatal(err)
	}
	if v := Vector(r); v == nil || math.Float64frombits(binary.LittleEndian.Uint64(v[3][:])) != -1 {
		t.Error("not changed by a handler that has set one")
	}
}

// A handler that has returned reads on, and changes nothing.
func TestStale(t *testing.T) {
	r, m, th := handed(t, Of{})
	if err := r.WriteMemory([]byte{1}, 0x10000); err != nil || m.b[0] != 1 {
		t.Errorf("before: %v", err)
	}
	End(r)
	if err := r.WriteMemory([]byte{2}, 0x10000); !errors.Is(err, ErrStale) || m.b[0] != 1 {
		t.Errorf("written afterwards: %v", err)
	}
	if _, err := r.Float(0); !errors.Is(err, ErrStale) || th.asked != 0 {
		t.Errorf("asked the thread afterwards: %v", err)
	}
	if w, err := r.StackWord(1); err != nil || w != 7 {
		t.Errorf("read %d afterwards: %v", w, err)
	}
}

// Text is read up to its NUL, over pages, to its limit, and not from where nothing is.
func TestReadString(t *testing.T) {
	r, m, _ := handed(t, Of{})
	long := strings.Repeat("x", 5000)
	copy(m.b[0x0f00:], long)
	for _, c := range []struct {
		at    symbols.Addr
		limit int
		want  string
	}{{0x10f00, 10000, long}, {0x10f00, 4097, long[:4097]}, {0x10f00, 0, ""}, {0x12fff, 100, ""}} {
		if got, err := r.ReadString(c.at, c.limit); err != nil || got != c.want {
			t.Errorf("at %v, up to %d: %d bytes, %v, want %d", c.at, c.limit, len(got), err, len(c.want))
		}
	}
	m.b[0x2fff] = 'e' // no NUL before the end of memory
	if _, err := r.ReadString(0x12fff, 100); !errors.Is(err, errFault) {
		t.Errorf("read beyond memory: %v", err)
	}
}

// A function is skipped at its entry only, and not beside a shadow stack.
func TestSkipFunction(t *testing.T) {
	r, _, _ := handed(t, Of{Entry: true})
	if err := r.SkipFunction(42); err != nil {
		t.Fatal(err)
	}
	if got := Registers(r); got.Rip != 0x401234 || got.Rax != 42 || got.Rsp != 0x10808 {
		t.Errorf("skipped to %+v", got)
	}
	for name, of := range map[string]Of{"no entry": {}, "a shadow stack": {Entry: true, Shadow: true}} {
		r, _, _ := handed(t, of)
		before := Registers(r)
		if err := r.SkipFunction(42); err == nil || Registers(r) != before {
			t.Errorf("%s: %v", name, err)
		}
	}
	moved, _, _ := handed(t, Of{Entry: true})
	moved.SetIP(0x401004)
	if err := moved.SkipFunction(42); err == nil {
		t.Error("skipped from behind the entry")
	}
	lost, _, _ := handed(t, Of{Entry: true})
	lost.SetSP(0x1)
	if err := lost.SkipFunction(42); !errors.Is(err, errFault) {
		t.Errorf("without a return address: %v", err)
	}
}
