package area

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
	"kprobe/probe/memory"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// text is a page of a stopped process, in the place of code that kprobe writes to.
type text struct {
	*testing.T
	p       *tracee.Process
	threads []*tracee.Thread
	at      uint64
}

// withText calls fn with a page of no-ops.
func withText(t *testing.T, fn func(x *text)) {
	t.Helper()
	cmd := exec.Command(fixture.NeedFile(t, "/bin/sleep"), "1000")
	fixture.Start(t, cmd)
	tr, err := tracee.New()
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if err := tr.Handle(passing{}); err != nil {
		t.Fatal(err)
	}
	p, err := tr.Attach(t.Context(), cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	err = p.Detach(t.Context(), func(stopped []*tracee.Thread) (err error) {
		defer func() {
			if failed := recover(); failed != nil {
				err = fmt.Errorf("%v", failed)
			}
		}()
		at, err := p.Syscall(t.Context(), nil, unix.SYS_MMAP, 0, memory.PageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, ^uintptr(0), 0)
		if err != nil {
			return err
		}
		x := &text{t, p, stopped, uint64(at)}
		x.must(p.WriteMemory(bytes.Repeat([]byte{0x90}, memory.PageSize), symbols.Addr(at)))
		fn(x)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// must ends the test at an error. It is called on the tracer's thread.
func (x *text) must(err error) {
	if err != nil {
		panic(err)
	}
}

// write writes bytes at an offset, as kprobe does, and gives what undoes that.
func (x *text) write(off int, leads bool, b ...byte) *Write {
	at := x.at + uint64(off)
	w := &Write{Change: memory.Change{At: at, Old: b, New: x.read(at, len(b))}, Leads: leads}
	x.must(x.p.WriteMemory(b, symbols.Addr(at)))
	return w
}

func (x *text) read(at uint64, n int) []byte {
	b := make([]byte, n)
	_, err := x.p.ReadMemory(b, symbols.Addr(at))
	x.must(err)
	return b
}

// restoredAt puts the thread at an offset, restores the text and gives the offset at which
// the thread is then.
func (x *text) restoredAt(off int, list ...*Write) int {
	th := x.threads[0]
	regs, err := th.Regs()
	x.must(err)
	was := *regs
	there := was
	there.Rip = x.at + uint64(off)
	x.must(th.SetRegs(&there))
	x.must(Restore(x.p, list, x.threads))
	regs, err = th.Regs()
	x.must(err)
	now := int(regs.Rip - x.at)
	other := *regs
	if other.Rip = there.Rip; other != there {
		x.Errorf("registers besides the instruction pointer have changed")
	}
	x.must(th.SetRegs(&was))
	return now
}

func (x *text) isRestored() {
	x.Helper()
	if got := x.read(x.at, memory.PageSize); !bytes.Equal(got, bytes.Repeat([]byte{0x90}, memory.PageSize)) {
		x.Errorf("the text is % x, want no-ops", bytes.Trim(got, "\x90"))
	}
}

// TestRestoreLeadsThreads takes patches out under a thread that is anywhere in them.
func TestRestoreLeadsThreads(t *testing.T) {
	const short = 1024
	far := []byte{0xe9, 1, 2, 3, 4}
	for _, tt := range []struct {
		name   string
		rel8   int8
		opcode bool // the displacement is the byte that was there
		at     int  // of the thread, from the short jump on
		want   int
	}{
		{name: "at the short jump", rel8: 20, at: 0, want: 0},
		{name: "at the long jump", rel8: 20, at: 22, want: 0},
		{name: "at the long jump, as far on as can be", rel8: 127, at: 129, want: 0},
		{name: "at the long jump, as far back as can be", rel8: -128, at: -126, want: 0},
		{name: "at the long jump of an opcode", opcode: true, rel8: -112, at: -110, want: 0}, // 0x90
		{name: "before the long jump", rel8: 20, at: 21, want: 21},
		{name: "behind the long jump", rel8: 20, at: 27, want: 27},
		{name: "elsewhere", rel8: 20, at: 700, want: 700},
	} {
		t.Run(tt.name, func(t *testing.T) {
			withText(t, func(x *text) {
				code := []byte{JmpRel8, byte(tt.rel8)}
				if tt.opcode {
					code = code[:1]
				}
				lead := x.write(short, true, code...)
				long := x.write(short+2+int(tt.rel8), false, far...)
				if got := x.restoredAt(short+tt.at, long, lead) - short; got != tt.want {
					t.Errorf("the thread is at %+d from the short jump, want %+d", got, tt.want)
				}
				if !lead.Wrote || !long.Wrote || !lead.Done || !long.Done {
					t.Errorf("undone are %+v and %+v", lead, long)
				}
				x.isRestored()
			})
		})
	}
}

// TestRestoreFindsNeighbours: of many short jumps beside each other each has its own long
// one.
func TestRestoreFindsNeighbours(t *testing.T) {
	withText(t, func(x *text) {
		for i := range 24 {
			var list []*Write
			for k := range 24 { // a long jump each 5 bytes, the short ones 160 bytes before
				from, to := 1000+4*k, 1100+5*k
				list = append(list, x.write(from, true, JmpRel8, byte(to-from-2)), x.write(to, false, 0xe9, 0, 0, 0, 0))
			}
			if got, want := x.restoredAt(1100+5*i, list...), 1000+4*i; got != want {
				t.Errorf("from the long jump %d the thread is at %d, want %d", i, got, want)
			}
			x.isRestored()
		}
	})
}

// TestRestoreLeaves what isn't kprobe's any more: another's bytes, and memory that is gone.
func TestRestoreLeaves(t *testing.T) {
	withText(t, func(x *text) {
		other := x.write(64, true, JmpRel8, 20)
		x.must(x.p.WriteMemory([]byte{0xcc}, symbols.Addr(other.At)))
		gone := &Write{Change: memory.Change{At: 1 << 16, Old: []byte{0xcc}, New: []byte{0x90}}}
		if got := x.restoredAt(64+22, other, gone); got != 64+22 {
			t.Errorf("a thread that took no jump of kprobe's was led to %d", got)
		}
		if got := x.read(other.At, 2); !bytes.Equal(got, []byte{0xcc, 20}) {
			t.Errorf("another's bytes became % x", got)
		}
		for _, w := range []*Write{other, gone} {
			if !w.Done || w.Wrote {
				t.Errorf("%+v", w)
			}
		}
	})
}

// TestRestoreUnderneath undoes writes that were made over each other, in any order.
func TestRestoreUnderneath(t *testing.T) {
	withText(t, func(x *text) {
		for i := range 6 {
			below := x.write(200, true, JmpRel8, 20)
			above := x.write(200, false, 0xcc)
			top := x.write(199, false, 0xe9, 0, 0, 0, 0)
			list := []*Write{below, above, top}
			list[0], list[i%3] = list[i%3], list[0]
			list[1], list[1+i%2] = list[1+i%2], list[1]
			x.must(Restore(x.p, list, x.threads))
			x.isRestored()
		}
		var many []*Write
		for i := range mostOver + 2 {
			many = append(many, &Write{Change: memory.Change{At: x.at + 300 + uint64(i), Old: make([]byte, mostOver+4), New: make([]byte, mostOver+4)}})
		}
		if err := Restore(x.p, many, x.threads); !errors.Is(err, errWritesOver) {
			t.Errorf("writes over each other without end: %v", err)
		}
	})
}

// TestLifted tells the bytes that a write has changed from those that it found.
func TestLifted(t *testing.T) {
	w := Write{Change: memory.Change{At: 100, Old: []byte{0xe9, 2, 3}, New: []byte{0x90, 2, 4}}}
	for _, wrote := range []bool{false, true} {
		w.Wrote = wrote
		for at, changed := range map[uint64]bool{99: false, 100: true, 101: false, 102: true, 103: false} {
			if got := w.lifted(at); got != (changed && wrote) {
				t.Errorf("undone %v, at %d: %v", wrote, at, got)
			}
		}
	}
}
