package probe

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// What the kernel's document of kprobes says and no other test shows.

// TestOwnCode: what kprobe has put into a process can't be probed.
func TestOwnCode(t *testing.T) {
	sub := startSubject(t, callsFixture(t), "work", "100")
	l := attach(t, sub.pid(), Options{}, "p:in work", "r:out work")
	maps, err := symbols.ReadMaps(sub.pid())
	if err != nil {
		t.Fatal(err)
	}
	own := 0 // in detours and copies; fallback handlers and return trampolines are refused as memory without a file
	for _, m := range maps {
		if m.Path != "" || !m.Exec {
			continue
		}
		for _, at := range []symbols.Addr{m.Start, (m.Start + m.End) / 2} {
			var refused *RefusedError
			err := l.s.Arm(t.Context(), parseDefs(t, fmt.Sprintf("p:own 0x%x", uint64(at))))
			if !errors.As(err, &refused) {
				t.Errorf("a probe at %v: %v", at, err)
			} else if refused.Rule == "it is kprobe's own code" {
				own++
			}
		}
	}
	if own == 0 {
		t.Error("no address was refused as kprobe's own")
	}
	sub.work()
	l.finish(sub.pid())
	sub.end()
	for _, name := range []string{"in", "out"} {
		if st := l.stat(name); st.Hits != 100 {
			t.Errorf("%s: %d hits", name, st.Hits)
		}
	}
}

// TestSignalTrampoline: the code that handlers return to is refused, wherever
// the C library has it.
func TestSignalTrampoline(t *testing.T) {
	sub := startSubject(t, callsFixture(t), "work", "10")
	maps, err := symbols.ReadMaps(sub.pid())
	if err != nil {
		t.Fatal(err)
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", sub.pid()))
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	l := attach(t, sub.pid(), Options{}, "p:in work")
	restorer := []byte{0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05} // mov $15, %rax; syscall
	found := 0
	for _, m := range maps {
		if !m.Exec || !strings.HasPrefix(filepath.Base(m.Path), "libc.") {
			continue
		}
		text := make([]byte, m.End-m.Start)
		if _, err := mem.ReadAt(text, int64(m.Start)); err != nil {
			t.Fatal(err)
		}
		at := bytes.Index(text, restorer)
		if at < 0 {
			continue
		}
		found++
		var refused *RefusedError
		err := l.s.Arm(t.Context(), parseDefs(t, fmt.Sprintf("p:back 0x%x", uint64(m.Start)+uint64(at))))
		if !errors.As(err, &refused) || !strings.Contains(refused.Rule, "signal trampoline") {
			t.Errorf("a probe of the trampoline: %v", err)
		}
	}
	if found == 0 {
		t.Error("libc has no trampoline")
	}
	sub.work()
	l.finish(sub.pid())
	sub.end()
}

// TestMaxactiveDefault: a return probe without a number follows 1024 calls at once.
func TestMaxactiveDefault(t *testing.T) {
	const depth = 2000
	prog := fixture.Build(t, "probe_unwind.cc", "-O2")
	const want = 1024
	for _, o := range []Options{{}, {NoOptimize: true}} {
		sub := startSubject(t, prog, "deep", fmt.Sprint(depth))
		l := attach(t, sub.pid(), o, "r:out recurse")
		sub.work()
		l.finish(sub.pid())
		sub.end()
		if st := l.stat("out"); st.Hits != want || st.Missed != depth+1-want {
			t.Errorf("optimize %v: %d hits and %d missed, want %d and %d", !o.NoOptimize, st.Hits, st.Missed, want, depth+1-want)
		}
	}
}

// TestJprobeDefinition: the definition j records every parameter by the name
// that the source gives it.
func TestJprobeDefinition(t *testing.T) {
	for _, o := range []Options{{}, {NoOptimize: true}} {
		sub := startSubject(t, callsFixture(t, "-O1", "-g", "-pthread"), "work", "100")
		l := attach(t, sub.pid(), o, "j:all work")
		sub.work()
		l.finish(sub.pid())
		sub.end()
		got := l.sink.all()
		for i, line := range got {
			if want := fmt.Sprintf(`all a=%d s="hello"`, i); line != want {
				t.Errorf("hit %d is %q, want %q", i, line, want)
			}
		}
		if len(got) != 100 {
			t.Errorf("%d hits", len(got))
		}
	}
}
