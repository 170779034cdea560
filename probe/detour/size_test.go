package detour

import (
	"testing"

	"kprobe/probe/asm"
)

// ample is how many bytes more an entry takes where few returns are probed.
const ample = 120

// A probe takes 512 bytes of the program's memory at most, besides its instances:
// all its code, with an instruction of seven bytes that was displaced, in a process
// whose mappings lie far from each other.
func TestBytesPerProbe(t *testing.T) {
	const far, limit = 0x7fff_1234_0000, 512
	p := &Params{PerCPU: far + 0x5000, Flags: far, AreaShift: 20, CPUMask: 3, RingSize: 4 << 20, StackEnd: 0x7fff_ffff_f000, Clock: far + 0x100,
		TID: TID{Seg: asm.FS, Off: 0x2d0}, Rdpid: true, FSGSBase: true, Shared: anyShared(t)}
	tail := func(c *asm.Code) error {
		c.Lea(asm.AX, asm.At(asm.DI, 0x12345))
		c.Jmp(c.Mark())
		c.Nop(3) // where it leads is farther away
		return nil
	}
	leave := func(c *asm.Code) error { c.Ret(); return nil }
	size := func(d *Detour, err error) int {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range d.Faults() {
			if f.At < d.Base || f.At >= d.Base+uint64(len(d.Code)) || f.To <= d.Base || f.To >= d.Base+uint64(len(d.Code)) {
				t.Errorf("fault at %#x goes to %#x", f.At, f.To)
			}
		}
		return len(d.Code)
	}
	for _, tt := range []struct {
		text string
		most int
	}{
		{"p f", 192},
		{"p f a=%di b=%si", 208},
		{"p f a=%di b=+0(%si):u32", 232},
		{"p f a=%di if a > 3 && a < 900", 248},
		{"p f a=+0(%di):u64[64]", 304},
		{"p f s=+0(%si):string", 352},
		{"p f a=%di b=%dx s=+0(%si):string", 368},
		{"p f a=%di b=%si n=$comm", 368},
		{`p f a=%di b=%dx s=+0(%si):string if s == "hello"`, 440},
		{"p f a=%dx b=%cx s=+0(%si):string t=+0(%di):string", 480},
	} {
		if n := size(Build(codeAt, p, []Probe{{ID: 1, Program: must(t, tt.text)}}, tail)); n > tt.most {
			t.Errorf("%s: %d bytes, more than %d", tt.text, n, tt.most)
		}
	}
	for _, tt := range []struct {
		text               string
		exits, trampolines int // most bytes: the entry and one exit; all but the stubs
	}{
		{"r f", 416, 480},
		{"r f v=$retval", 432, 480},
		{"r f v=$retval a=$arg1 b=$arg2", 480, limit},
		{"r f v=$retval s=+0($retval):string", 496, limit},
		{"r f v=$retval s=+0($arg1):string", limit, limit},
	} {
		prog := must(t, tt.text)
		probe := Probe{ID: 1, Program: prog}
		k, err := NewCalls(far+0x100_0000, prog, 10)
		if err != nil {
			t.Fatal(err)
		}
		enter := size(BuildEnter(codeAt, p, nil, probe, k, tail))
		longer := *p
		longer.Ample = true
		if n := size(BuildEnter(codeAt, &longer, nil, probe, k, tail)); n > enter+ample {
			t.Errorf("%s: %d bytes for an entry that notes calls itself, more than %d and %d", tt.text, n, enter, ample)
		}
		exit := size(BuildLeave(codeAt, p, probe, k, 0, leave))
		if n := enter + exit; n > tt.exits {
			t.Errorf("%s: %d bytes for the entry and %d for the exit, more than %d", tt.text, enter, exit, tt.exits)
		}
		pool, err := NewPool(far+0x100_0000, prog, 10, maxStripes)
		if err != nil {
			t.Fatal(err)
		}
		r, err := BuildReturn(codeAt, p, probe, pool, tail)
		if err != nil {
			t.Fatal(err)
		}
		if n := size(&r.Detour, nil) - pool.Count*stubSize; n > tt.trampolines {
			t.Errorf("%s: %d bytes, more than %d, by return trampolines", tt.text, n, tt.trampolines)
		}
	}
}
