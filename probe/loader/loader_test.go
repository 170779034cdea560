package loader

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/internal/procfs"
	"kprobe/symbols"
)

// processMemory is the memory of a process, with what a test has changed in it.
type processMemory struct {
	f       *os.File
	changed map[symbols.Addr]uint64
}

func (m processMemory) ReadMemory(b []byte, at symbols.Addr) (int, error) {
	if v, ok := m.changed[at]; ok {
		return copy(b, binary.LittleEndian.AppendUint64(nil, v)), nil
	}
	return m.f.ReadAt(b, int64(at))
}

// started runs a program that waits, and opens it when it runs its own code.
func started(t *testing.T, compiler string, flags ...string) (*symbols.Space, processMemory) {
	t.Helper()
	dir := t.TempDir()
	src, prog := filepath.Join(dir, "waits.c"), filepath.Join(dir, "waits")
	if err := os.WriteFile(src, []byte("#include <stdio.h>\nint main(void) { puts(\"ready\"); fflush(stdout); return getchar(); }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := exec.Command(fixture.NeedTool(t, compiler), append(flags, "-o", prog, src)...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	cmd := exec.Command(prog)
	_, out := fixture.Start(t, cmd)
	if _, err := io.ReadFull(out, make([]byte, len("ready\n"))); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(procfs.Image(cmd.Process.Pid).Path("mem"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	mem := processMemory{f, map[symbols.Addr]uint64{}}
	space, err := symbols.OpenProcess(cmd.Process.Pid, mem)
	if err != nil {
		t.Fatal(err)
	}
	return space, mem
}

// TestRunning finds the function that the loaders of glibc and musl call, by what they
// say themselves, and none in a static program.
func TestRunning(t *testing.T) {
	for _, c := range []string{"cc", "musl-gcc"} {
		t.Run(c, func(t *testing.T) {
			space, mem := started(t, c, "-O1")
			l, err := Running(space, mem)
			if err != nil {
				t.Fatal(err)
			}
			start, err := ReadStart(space.PID())
			if err != nil {
				t.Fatal(err)
			}
			if m := space.ModuleAt(start.Entry); m == nil || !m.Main {
				t.Errorf("the entry %v is not in the program", start.Entry)
			}
			ld := space.ModuleAt(start.Base)
			if at := space.ModuleAt(l.At); ld == nil || at != ld {
				t.Errorf("the loader is %v, what it calls is in %v", ld, at)
			}
			if !l.Whole(mem) {
				t.Error("the list of a program that runs is not whole")
			}
			for _, state := range []uint64{1, 2, 1 << 31} {
				mem.changed[l.State] = state
				if l.Whole(mem) {
					t.Errorf("the list is whole in state %d", state)
				}
			}
			delete(mem.changed, l.State)
			// What is known before anything runs is the same.
			// musl's record has no name: its state isn't known then.
			if early := New(ld); early.At != l.At || early.State != l.State && (c == "cc" || early.State != 0) {
				t.Errorf("by its symbols it is %+v, by its memory %+v", early, l)
			}
			mem.changed[l.State-debugState+debugBrk] = 0
			if _, err := Running(space, mem); !errors.Is(err, ErrNone) {
				t.Errorf("a loader that calls nothing: %v", err)
			}
			clear(mem.changed)
			mem.f.Close()
			if _, err := Running(space, mem); err == nil || errors.Is(err, ErrNone) {
				t.Errorf("memory that can't be read: %v", err)
			}
		})
	}
	t.Run("static", func(t *testing.T) {
		space, mem := started(t, "cc", "-O1", "-static")
		if l, err := Running(space, mem); !errors.Is(err, ErrNone) {
			t.Errorf("%+v, %v", l, err)
		}
	})
	if l := New(nil); l != (Loader{}) {
		t.Errorf("without a loader: %+v", l)
	}
}

// TestRunningIsGone: a process that has ended is an error, not a program without a
// loader.
func TestRunningIsGone(t *testing.T) {
	space, mem := started(t, "cc", "-O1")
	p, err := os.FindProcess(space.PID())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(); err != nil {
		t.Logf("its end is waited for elsewhere: %v", err)
	}
	if _, err := Running(space, mem); err == nil || errors.Is(err, ErrNone) {
		t.Errorf("%v", err)
	}
}

// TestParseStart: of an auxiliary vector that is cut off, or holds anything, what is
// whole counts, up to its end.
func TestParseStart(t *testing.T) {
	vector := func(words ...uint64) (b []byte) {
		for _, w := range words {
			b = binary.LittleEndian.AppendUint64(b, w)
		}
		return b
	}
	full := vector(3, 1, atBase, 0x7f00, 6, 4096, atEntry, 0x4000, atNull, 0)
	for _, tt := range []struct {
		b    []byte
		want Start
	}{
		{nil, Start{}},
		{full, Start{Entry: 0x4000, Base: 0x7f00}},
		{append(full[:len(full):len(full)], vector(atBase, 1, atEntry, 2)...), Start{Entry: 0x4000, Base: 0x7f00}},
		{full[:31], Start{}},
		{full[:63], Start{Base: 0x7f00}},
		{full[:64], Start{Entry: 0x4000, Base: 0x7f00}},
		{vector(atEntry, 1<<63), Start{Entry: 1 << 63}},
	} {
		if got := parseStart(tt.b); got != tt.want {
			t.Errorf("% x: %+v, want %+v", tt.b, got, tt.want)
		}
	}
}

// TestRseqOffset: glibc's threads have their areas where their registrations are, and
// numbers that can't be are no place.
func TestRseqOffset(t *testing.T) {
	space, mem := started(t, "cc", "-O1")
	start, err := ReadStart(space.PID())
	if err != nil {
		t.Fatal(err)
	}
	ld := space.ModuleAt(start.Base)
	size, offset := ld.File.Lookup("__rseq_size"), ld.File.Lookup("__rseq_offset")
	if len(size) == 0 || len(offset) == 0 {
		fixture.Missing(t, "the C library is older than 2.35")
	}
	if off, why := RseqOffset(space, mem); (off > 0) == (why != "") {
		t.Errorf("%d, %q", off, why)
	}
	for _, tt := range []struct {
		size, offset uint64
		off          int32
		why          string
	}{
		{32, 0x9a0, 0x9a0, ""},
		{1<<32 + 20, 0x9a0, 0x9a0, ""}, // its neighbour isn't a part of it
		{0, 0x9a0, 0, "registers no rseq areas"},
		{1 << 32, 0x9a0, 0, "registers no rseq areas"},
		{32, 0, 0, "in no place that is known"},
		{32, 1 << 31, 0, "in no place that is known"},
		{32, 1<<32 + 8, 0, "in no place that is known"},
		{32, 1<<64 - 64, 0, "in no place that is known"},
	} {
		mem.changed[ld.Addr(size[0].Vaddr)], mem.changed[ld.Addr(offset[0].Vaddr)] = tt.size, tt.offset
		off, why := RseqOffset(space, mem)
		if why == "" && off != tt.off || (why == "") != (tt.why == "") || !strings.Contains(why, tt.why) {
			t.Errorf("size %#x, offset %#x: %d, %q", tt.size, tt.offset, off, why)
		}
	}
	for _, c := range [][]string{{"musl-gcc", "-O1"}, {"musl-gcc", "-O1", "-static"}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			if off, why := RseqOffset(started(t, c[0], c[1:]...)); why == "" {
				t.Errorf("musl has areas at %d", off)
			}
		})
	}
}
