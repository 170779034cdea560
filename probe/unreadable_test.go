package probe

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// TestUnreadable: what the program has made unreadable is a fault, by jumps and by
// breakpoints alike: a tracer could read it, the program can't. Memory that can
// only be executed is read, or isn't, as the program would.
func TestUnreadable(t *testing.T) {
	prog := fixture.Build(t, "probe_calls.c", "-O1", "-pthread")
	var lines [][]string
	for _, o := range []Options{{}, {NoOptimize: true}} {
		sub := startSubject(t, prog, "work", "3")
		s, err := Attach(t.Context(), []int{sub.pid()}, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close(t.Context()) })
		const page = 4096
		at := uint64(0x2f0000000000)
		err = s.engine.Tracer.Do(func() error {
			p := s.engine.Targets[sub.pid()].Proc
			if _, err := p.Syscall(t.Context(), nil, unix.SYS_MMAP, uintptr(at), 3*page, unix.PROT_READ|unix.PROT_WRITE,
				unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED_NOREPLACE, ^uintptr(0), 0); err != nil {
				return err
			}
			if err := p.WriteMemory(bytes.Repeat([]byte("readable"), 3*page/8), symbols.Addr(at)); err != nil {
				return err
			}
			for i, prot := range []uintptr{unix.PROT_NONE, unix.PROT_EXEC} {
				if _, err := p.Syscall(t.Context(), nil, unix.SYS_MPROTECT, uintptr(at)+uintptr(i+1)*page, page, prot); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		last := at + page - 4
		def := fmt.Sprintf("p:f work ok=@%#x:u32 none=@%#x:u8 over=@%#x:u64 text=+0(\\%#x):string exec=@%#x:u8 parts=@%#x:x16[4]",
			last, at+page, last, last, at+2*page, last)
		if err := s.Arm(t.Context(), parseDefs(t, def)); err != nil {
			t.Fatal(err)
		}
		l := collecting(t, s)
		l.begin(l.sink)
		sub.work()
		l.stop()
		<-l.done
		if err := s.Close(t.Context()); err != nil || l.err != nil {
			t.Errorf("%v, %v", err, l.err)
		}
		sub.end()
		got := l.sink.all()
		if len(got) != 3 {
			t.Fatalf("%d hits: %q", len(got), got)
		}
		lines = append(lines, got)
	}
	if !slices.Equal(lines[0], lines[1]) {
		t.Errorf("jumps say %q, breakpoints %q", lines[0][0], lines[1][0])
	}
	if want := "f ok=1701601889 none=(fault) over=(fault) text=(fault) exec="; !strings.HasPrefix(lines[0][0], want) {
		t.Errorf("%q, want %q", lines[0][0], want)
	}
}
