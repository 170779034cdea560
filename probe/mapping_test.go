package probe

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
	"kprobe/probe/area"
	"kprobe/probe/memory"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// anonymousSize is how much memory a process has that no file backs, [heap] and
// stacks left out.
func anonymousSize(t *testing.T, pid int) (n uint64) {
	t.Helper()
	maps, err := symbols.ReadMaps(pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range maps {
		if m.Path == "" {
			n += uint64(m.End - m.Start)
		}
	}
	return n
}

// TestRecoverPieces recovers from a kprobe that was killed in each of the states
// of an arena of memory (memory/mapping.go): what is kprobe's is unmapped, and what the
// program has mapped there is not.
func TestRecoverPieces(t *testing.T) {
	const size = 3 * memory.PageSize
	sub := startSubject(t, fixture.Build(t, "probe_forever.c", "-O2"), "1")
	before := anonymousSize(t, sub.pid())
	mmap := func(t *testing.T, a *area.Area, p *memory.Arena, prot uintptr) {
		t.Helper()
		if _, err := a.Proc.Syscall(t.Context(), nil, unix.SYS_MMAP, uintptr(p.Start), uintptr(p.Size), prot,
			unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED_NOREPLACE, ^uintptr(0), 0); err != nil {
			t.Fatal(err)
		}
	}
	munmapped := func(t *testing.T, a *area.Area, p *memory.Arena) {
		t.Helper()
		if err := memory.Munmap(t.Context(), a.Proc, p.Start, p.Size); err != nil {
			t.Fatal(err)
		}
	}
	write := func(t *testing.T, a *area.Area, p *memory.Arena, b []byte) {
		t.Helper()
		if err := a.Proc.WriteMemory(b, p.Start+memory.PageSize); err != nil {
			t.Fatal(err)
		}
	}
	mark := func(t *testing.T, a *area.Area, p *memory.Arena) {
		t.Helper()
		if err := a.Proc.WriteMemory(memory.LeavingMark(p.Start), p.Start); err != nil {
			t.Fatal(err)
		}
	}
	const rx, rw = unix.PROT_READ | unix.PROT_EXEC, unix.PROT_READ | unix.PROT_WRITE
	for _, c := range []struct {
		name    string
		program bool // what is there in the end is the program's
		do      func(t *testing.T, a *area.Area, p *memory.Arena) error
	}{
		{"coming", false, func(t *testing.T, a *area.Area, p *memory.Arena) error { return a.Journal.Coming(p) }},
		{"mapped", false, func(t *testing.T, a *area.Area, p *memory.Arena) error {
			err := a.Journal.Coming(p)
			mmap(t, a, p, rx)
			return err
		}},
		{"there", false, func(t *testing.T, a *area.Area, p *memory.Arena) error {
			err := a.Journal.Coming(p)
			mmap(t, a, p, rx)
			write(t, a, p, []byte{1})
			return errors.Join(err, a.Journal.There(p))
		}},
		{"marked", false, func(t *testing.T, a *area.Area, p *memory.Arena) error {
			err := a.Journal.Coming(p)
			mmap(t, a, p, rw)
			mark(t, a, p)
			return errors.Join(err, a.Journal.There(p))
		}},
		{"going", false, func(t *testing.T, a *area.Area, p *memory.Arena) error {
			err := a.Journal.Coming(p)
			mmap(t, a, p, rw)
			write(t, a, p, []byte{1})
			mark(t, a, p)
			return errors.Join(err, a.Journal.Going(p))
		}},
		{"unmapped", false, func(t *testing.T, a *area.Area, p *memory.Arena) error {
			err := a.Journal.Coming(p)
			mmap(t, a, p, rx)
			munmapped(t, a, p)
			return err
		}},
		{"the program was first", true, func(t *testing.T, a *area.Area, p *memory.Arena) error {
			mmap(t, a, p, rw)
			return a.Journal.Coming(p)
		}},
		{"the program's code was first", true, func(t *testing.T, a *area.Area, p *memory.Arena) error {
			mmap(t, a, p, rx)
			write(t, a, p, []byte{0xc3})
			return a.Journal.Coming(p)
		}},
		{"the program came after", true, func(t *testing.T, a *area.Area, p *memory.Arena) error {
			err := a.Journal.Coming(p)
			mmap(t, a, p, rw)
			mark(t, a, p)
			munmapped(t, a, p)
			mmap(t, a, p, rw)
			return errors.Join(err, a.Journal.Going(p))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr, err := tracee.New()
			if err != nil {
				t.Fatal(err)
			}
			p, err := tr.Attach(t.Context(), sub.pid())
			if err != nil {
				t.Fatal(err)
			}
			var at symbols.Addr
			err = tr.Do(func() error {
				layout, err := ring.New(ring.Params{CPUs: memory.PossibleCPUs()})
				if err != nil {
					return err
				}
				a := &area.Area{Proc: p}
				if a.File, err = memory.New(t.Context(), p, layout); err != nil {
					return err
				}
				a.Journal = memory.NewJournal(a.File)
				a.Code = memory.NewArenas(p, a.Journal)
				a.Journal.Open(p.PID())
				free, err := a.Code.MapNear(t.Context(), a.File.Base, size)
				if err != nil {
					return err
				}
				at = free.Start
				if err := a.Code.Unmap(t.Context(), free); err != nil {
					return err
				}
				return c.do(t, a, &memory.Arena{Start: at, Size: size})
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Detach(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			if err := tr.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := Recover(t.Context(), []int{sub.pid()}); err != nil {
				t.Fatal(err)
			}
			want := before
			if c.program {
				want += size
			}
			if got := anonymousSize(t, sub.pid()); got != want || leftBehind(sub.pid()) != "" {
				t.Errorf("%d bytes without a file are mapped, want %d; %s", got, want, leftBehind(sub.pid()))
			}
			if c.program {
				before = want
			}
		})
	}
	if got := sub.work(); got != "done 0" {
		t.Errorf("the program printed %q", got)
	}
	sub.end()
}
