package semaphore

import (
	"encoding/binary"
	"fmt"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
	"kprobe/probe/memory"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// apart is a tracee.Handler that has nothing to do with what happens.
type apart struct{}

func (apart) Breakpoint(*tracee.Thread) tracee.Verdict                   { return tracee.NotMine }
func (apart) Stepped(*tracee.Thread) tracee.Verdict                      { return tracee.Resume }
func (apart) Signal(*tracee.Thread, *tracee.Siginfo) tracee.Verdict      { return tracee.Deliver }
func (apart) NewThread(*tracee.Thread)                                   {}
func (apart) Fork(*tracee.Thread, *tracee.Process, tracee.ForkKind) bool { return false }
func (apart) Exec(*tracee.Process)                                       {}
func (apart) ThreadExit(*tracee.Thread)                                  {}
func (apart) Exited(*tracee.Process, syscall.WaitStatus)                 {}

// subject is a process that stands still, with a memory file and a page of counters.
type subject struct {
	*testing.T
	Layer
	counters symbols.Addr
}

// stopped calls fn with a subject.
func stopped(t *testing.T, fn func(s *subject)) {
	t.Helper()
	cmd := exec.Command(fixture.NeedFile(t, "/bin/sleep"), "1000")
	fixture.Start(t, cmd)
	tr, err := tracee.New()
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if err := tr.Handle(apart{}); err != nil {
		t.Fatal(err)
	}
	p, err := tr.Attach(t.Context(), cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	layout, err := ring.New(ring.Params{MaxProbes: 1, RingSize: ring.MinRingSize, Fallback: 1 << 16, Instances: 1 << 16, Code: 1 << 16})
	if err != nil {
		t.Fatal(err)
	}
	err = p.Detach(t.Context(), func([]*tracee.Thread) (err error) {
		defer func() {
			if failed := recover(); failed != nil {
				err = fmt.Errorf("%v", failed)
			}
		}()
		file, err := memory.New(t.Context(), p, layout)
		if err != nil {
			return err
		}
		s := &subject{T: t, Layer: Layer{Proc: p, File: file}}
		s.Map = func(size uint64) (symbols.Addr, error) {
			at, err := p.Syscall(t.Context(), nil, unix.SYS_MMAP, 0, uintptr(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, ^uintptr(0), 0)
			return symbols.Addr(at), err
		}
		if s.counters, err = s.Map(memory.PageSize); err != nil {
			return err
		}
		fn(s)
		return file.Unmap(t.Context())
	})
	if err != nil {
		t.Fatal(err)
	}
}

// must ends the test at an error. It is called on the tracer's thread.
func (s *subject) must(err error) {
	if err != nil {
		panic(err)
	}
}

// at is where the i-th counter lies.
func (s *subject) at(i int) symbols.Addr { return s.counters + symbols.Addr(2*i) }

func (s *subject) set(at symbols.Addr, n uint16) {
	s.Helper()
	s.must(s.Proc.WriteMemory(binary.LittleEndian.AppendUint16(nil, n), at))
}

func (s *subject) want(at symbols.Addr, n uint16, what string) {
	s.Helper()
	var b [2]byte
	_, err := s.Proc.ReadMemory(b[:], at)
	s.must(err)
	if got := binary.LittleEndian.Uint16(b[:]); got != n {
		s.Errorf("%s: the counter is %d, want %d", what, got, n)
	}
}

func (s *subject) entry(at symbols.Addr) Entry {
	s.Helper()
	b := make([]byte, EntrySize)
	_, err := s.Proc.ReadMemory(b, at)
	s.must(err)
	return Decode(b)
}

func (s *subject) change(set *Set, wanted map[symbols.Addr]bool) (failed []symbols.Addr) {
	s.Helper()
	up, down := set.Due(wanted)
	s.must(set.Prepare(len(up), s.Layer))
	s.must(set.Change(s.Proc, up, down, func(at symbols.Addr, _ error) { failed = append(failed, at) }))
	return failed
}

// TestRaisesAndLowers follows counters that another tracer raises, too.
func TestRaisesAndLowers(t *testing.T) {
	stopped(t, func(s *subject) {
		var set Set
		first, second := s.at(0), s.at(1)
		s.set(first, 7)
		if failed := s.change(&set, map[symbols.Addr]bool{first: true, second: true}); failed != nil {
			t.Errorf("not raised: %v", failed)
		}
		s.want(first, 8, "raised")
		s.want(second, 1, "raised")
		if e := s.entry(set.EntryOf(first)); e.Counter != first || e.State != Raised {
			t.Errorf("it is noted as %+v", e)
		}
		s.set(first, 9) // somebody else listens
		s.change(&set, map[symbols.Addr]bool{second: true})
		s.want(first, 8, "lowered")
		s.want(second, 1, "still wanted")
		if set.EntryOf(first) != 0 || set.EntryOf(second) == 0 {
			t.Errorf("raised are %v", set.raised)
		}
		for range 2 {
			s.must(LowerAll(s.Proc, s.File))
			s.want(first, 8, "lowered before")
			s.want(second, 0, "left")
		}
	})
}

// TestRaisesNoMore tells of counters that can't be raised, once.
func TestRaisesNoMore(t *testing.T) {
	stopped(t, func(s *subject) {
		var set Set
		full, code, nowhere, good := s.at(0), s.File.Base, symbols.Addr(16), s.at(1)
		s.set(full, 1<<16-1)
		wanted := map[symbols.Addr]bool{full: true, code: true, nowhere: true, good: true}
		failed := s.change(&set, wanted)
		slices.Sort(failed)
		want := []symbols.Addr{full, code, nowhere}
		if slices.Sort(want); !slices.Equal(failed, want) {
			t.Errorf("not raised: %v, want %v", failed, want)
		}
		s.want(full, 1<<16-1, "full")
		s.want(good, 1, "raised")
		if again := s.change(&set, wanted); again != nil {
			t.Errorf("tried again: %v", again)
		}
		// Its library is gone and comes again: what is there is no counter of kprobe's.
		s.must(set.Forget(s.Proc, func(at symbols.Addr) bool { return at == good }))
		s.set(full, 3)
		s.set(good, 0)
		if again := s.change(&set, wanted); len(again) != 2 {
			t.Errorf("not raised after they came again: %v", again)
		}
		s.want(full, 4, "came again")
		s.want(good, 1, "came again")
	})
}

// TestLowersWhatIsKprobes lowers what a kprobe has left that was killed, in each state of
// an entry, and what the program has made of its counter since.
func TestLowersWhatIsKprobes(t *testing.T) {
	for _, tt := range []struct {
		name  string
		entry Entry
		now   uint16
		want  uint16
	}{
		{"free", Entry{State: Free}, 5, 5},
		{"raising, not yet written", Entry{State: Raising, Before: 5}, 5, 5},
		{"raising, written", Entry{State: Raising, Before: 5}, 6, 5},
		{"raised", Entry{State: Raised}, 6, 5},
		{"raised, with others", Entry{State: Raised}, 9, 8},
		{"raised, and reset by the program", Entry{State: Raised}, 0, 0},
		{"lowering, not yet written", Entry{State: Lowering, Before: 6}, 6, 5},
		{"lowering, written", Entry{State: Lowering, Before: 6}, 5, 5},
		{"no state", Entry{State: 9, Before: 6}, 6, 6},
		{"raised, in another file", Entry{State: Raised, Inode: 77}, 6, 6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stopped(t, func(s *subject) {
				var set Set
				s.must(set.Prepare(1, s.Layer))
				at, e := set.free[0], tt.entry
				if e.Counter = s.at(3); e.State == Free {
					e = Entry{}
				}
				s.set(s.at(3), tt.now)
				s.must(s.Proc.WriteMemory(e.Encode(), at))
				for range 2 {
					s.must(LowerAll(s.Proc, s.File))
					s.want(s.at(3), tt.want, tt.name)
					if got := s.entry(at); got != (Entry{}) {
						t.Errorf("the entry is %+v", got)
					}
				}
			})
		})
	}
}

// TestLowersNothingElse: heads that the program has written over are no way to write
// elsewhere.
func TestLowersNothingElse(t *testing.T) {
	stopped(t, func(s *subject) {
		var set Set
		s.set(s.at(0), 1)
		s.must(set.Prepare(1, s.Layer))
		page := set.free[0] - pageHead
		link := s.File.Layout.Header.Off + memory.HeaderSemaphores
		for _, tt := range []struct {
			name   string
			off    symbols.Addr
			word   uint64
			refuse bool
		}{
			{"a size beyond what is mapped", pageSize, 1 << 29, true},
			{"a size that wraps", pageSize, ^uint64(0), true},
			{"no page of kprobe's", 0, 0, false},
			{"a page that leads to itself", pageNext, uint64(page), false},
		} {
			head := make([]byte, pageHead)
			_, err := s.Proc.ReadMemory(head, page)
			s.must(err)
			s.must(s.Proc.WriteMemory(binary.LittleEndian.AppendUint64(nil, tt.word), page+tt.off))
			if err := LowerAll(s.Proc, s.File); (err != nil) != tt.refuse {
				t.Errorf("%s: %v", tt.name, err)
			}
			s.want(s.at(0), 1, tt.name)
			s.must(s.Proc.WriteMemory(head, page))
		}
		s.must(s.File.Set64(link, 1<<40)) // unmapped since
		if err := LowerAll(s.Proc, s.File); err != nil {
			t.Error(err)
		}
	})
}
