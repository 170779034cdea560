package plan

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"kprobe/probe/insn"
)

// Both ways to take a function apart see the same.
func TestFromSweep(t *testing.T) {
	o := libc(t)
	same, indirect := 0, 0
	for n := 0; n < len(o.funcs); n += 5 {
		s := o.funcs[n]
		code := o.text[s.Lo-o.base:][:s.Hi-s.Lo]
		f, err := insn.Sweep(code, s.Lo, insn.SweepOptions{})
		if err != nil || len(f.Desyncs()) > 0 {
			continue
		}
		a, b := FromSweep(f, code, Known{}), NewFunc(s.Lo, code, len(code), Known{})
		if !slices.Equal(a.Sites(), b.Sites()) || !slices.Equal(a.targets, b.targets) || a.unknown == b.unknown && !slices.Equal(a.pads, b.pads) {
			t.Errorf("%#x: %d and %d sites, %d and %d targets", s.Lo, len(a.insts), len(b.insts), len(a.targets), len(b.targets))
		}
		if a.indirect && !b.indirect {
			t.Errorf("%#x: unknown jumps", s.Lo)
		}
		same++
		if b.indirect {
			indirect++
		}
	}
	if same < 100 || indirect == 0 {
		t.Errorf("%d functions, %d with indirect jumps", same, indirect)
	}
}

// No-ops behind a return are no padding where a table leads to them, nor where
// nobody knows where a jump leads.
func TestPadsBesideSwitches(t *testing.T) {
	// cmp $1,%rax; ja 1f; lea table(%rip),%rcx; jmp *(%rcx,%rax,8); ret; 2 no-ops; 1: ret
	code := unhex(t, "4883f801 770f 488d0df30f0000 ff24c1 c3 6690 6690 c3")
	const start, table = 0x1000, 0x2000
	read := func(b []byte, at uint64) error {
		var entries []byte
		for _, to := range []uint64{start + 0x10, start + 0x13} {
			entries = binary.LittleEndian.AppendUint64(entries, to)
		}
		if at < table || at-table+uint64(len(b)) > uint64(len(entries)) {
			return errors.New("nothing is there")
		}
		copy(b, entries[at-table:])
		return nil
	}
	for _, tt := range []struct {
		name string
		read func([]byte, uint64) error
		pads []pad
	}{{"read", read, []pad{{0x11, 0x13}}}, {"unknown", nil, nil}} {
		s, err := insn.Sweep(code, start, insn.SweepOptions{Read: tt.read})
		if err != nil {
			t.Fatal(err)
		}
		if f := FromSweep(s, code, Known{}); !slices.Equal(f.pads, tt.pads) || f.unknown != (tt.read == nil) {
			t.Errorf("%s: padding %v, unknown %v; want %v", tt.name, f.pads, f.unknown, tt.pads)
		}
	}
}

func TestNewFuncOdd(t *testing.T) {
	for _, tt := range []struct {
		name  string
		code  string
		size  int
		sites int
	}{
		{"empty", "", 0, 0},
		{"size beyond the code", "90 90", 9, 2},
		{"negative size", "90 90", -1, 0},
		{"cut off", "90 48 8b", 3, 1},
		{"an instruction over the end", "90 b8 00 00 00 00", 3, 1},
		{"data", "06 90 06 90", 4, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code := unhex(t, tt.code)
			f := NewFunc(base, code, tt.size, Known{Next: 99})
			if got := len(f.Sites()); got != tt.sites {
				t.Errorf("%d sites, want %d", got, tt.sites)
			}
			for _, at := range f.Sites() {
				if _, err := Plan(f, []Site{{Addr: at}}, around1G, nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
