package symbols

import (
	"encoding/binary"
	"os"
	"slices"
	"testing"

	"kprobe/internal/fixture"
)

// TestSequences finds a program's restartable sequences by the sections that name them,
// and by what they look like where no section does, or the file has none.
func TestSequences(t *testing.T) {
	for _, flags := range [][]string{{"-pie"}, {"-no-pie"}, {"-static"}, {"-static-pie"}, {"-pie", "-Wl,-z,pack-relative-relocs"}} {
		for _, named := range []string{"-DNAMED", "-DNAMELESS"} {
			path := fixture.Build(t, "own_sequences.c", append(flags, "-O2", "-lpthread", named)...)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			f, err := NewFile(path, b)
			if err != nil {
				t.Fatal(err)
			}
			checkSequences(t, f, append(flags, named)...)
			want := f.Sequences()

			bare := slices.Clone(b)
			binary.LittleEndian.PutUint64(bare[40:], 0) // e_shoff
			binary.LittleEndian.PutUint32(bare[60:], 0) // e_shnum, e_shstrndx
			f, err = NewFile(path, bare)
			if err != nil {
				t.Fatal(err)
			}
			if got := f.Sequences(); !slices.Equal(got, want) {
				t.Errorf("%v: without sections %v, want %v", flags, got, want)
			}
		}
	}
}

func checkSequences(t *testing.T, f *File, how ...string) {
	t.Helper()
	list := f.Sequences()
	if len(list) != 3 {
		t.Fatalf("%v: %v, want 3 sequences", how, list)
	}
	for _, name := range []string{"bump", "move"} {
		i := slices.IndexFunc(list, func(q Sequence) bool {
			fn, ok := f.FuncAt(q.Start)
			return ok && fn.Symbol.Name == name && q.End < fn.End && q.Start > fn.Start
		})
		if i < 0 {
			t.Fatalf("%v: none of %v is in %s", how, list, name)
		}
		q := list[i]
		b, err := f.Text(q.Abort-4, 4)
		if err != nil || binary.LittleEndian.Uint32(b) != SequenceSignature {
			t.Errorf("%v: %s: in front of %v is %x (%v)", how, name, q.Abort, b, err)
		}
		if first, err := f.Text(q.Start-4, 4); err != nil || string(first) != "\x48\x89\x47\x08" && string(first) != "\x48\x89\x46\x08" && string(first) != "\x48\x89\x42\x08" {
			t.Errorf("%v: %s: in front of the sequence is %x, want what announces it (%v)", how, name, first, err)
		}
	}
}

// TestNoSequences: what has the signature for another reason, as this test's own code, is none.
func TestNoSequences(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := OpenFile(self)
	if err != nil {
		t.Fatal(err)
	}
	if list := f.Sequences(); list != nil {
		t.Errorf("%v are found where none is", list)
	}
}
