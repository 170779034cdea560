package probe

import (
	"fmt"
	"path/filepath"
	"testing"

	"kprobe/internal/fixture"
)

// TestCopies has copies of a library come and go after the probes were put in:
// in namespaces of their own, and from another file of the same name, which only
// its path names while the first is there. Each is probed while it is there.
func TestCopies(t *testing.T) {
	for _, o := range []Options{{}, {NoOptimize: true}} {
		t.Run(fmt.Sprint("NoOptimize ", o.NoOptimize), func(t *testing.T) {
			prog := fixture.Build(t, "library_copies.c", "-O1", "-ldl")
			lib, other := filepath.Join(t.TempDir(), "libpart.so"), filepath.Join(t.TempDir(), "libpart.so")
			for _, file := range []string{lib, other} {
				run(t, "cc", "-O1", "-fPIC", "-shared", "-Wl,--no-as-needed", "-o", file, filepath.Join("..", "testdata", "library_part.c"))
			}
			sub := startSubject(t, prog, lib, other)
			step := func(word string, copies int) {
				t.Helper()
				if _, err := fmt.Fprintln(sub.in, word); err != nil {
					t.Fatal(err)
				}
				sub.expect(fmt.Sprintf("%d %d", copies, copies*145))
			}
			step("open", 1)
			o.Pending = always
			l := attach(t, sub.pid(), o, "p:work libpart:part_work n=$arg1", "r:back libpart:part_work v=$retval",
				"p:other "+other+":part_work", "p:flush libc:fflush")
			var work, others uint64
			check := func(word string, copies, ofOther int) {
				t.Helper()
				step(word, copies+ofOther)
				work += 10 * uint64(copies)
				others += 10 * uint64(ofOther)
				for name, want := range map[string]uint64{"work": work, "back": work, "other": others} {
					places := copies
					if name == "other" {
						places = ofOther
					}
					if st := l.stat(name); st.Hits != want || st.Missed != 0 || st.Places != places {
						t.Errorf("after %s, %s has %d hits, %d missed, at %d places; want %d at %d", word, name, st.Hits, st.Missed, st.Places, want, places)
					}
				}
			}
			check("apart", 2, 0)
			check("other", 2, 1)
			check("apart", 3, 1)
			if n := l.stat("flush").Places; n != 3 {
				t.Errorf("libc is probed in %d places, want those of three namespaces", n)
			}
			check("close", 2, 1)
			check("close", 2, 0)
			check("close", 1, 0)
			check("apart", 2, 0)
			// A copy of what is switched off is so, too.
			live := openedLive(t, sub.pid())
			if _, err := live.Enable(func(_, event string) bool { return event == "work" }, false); err != nil {
				t.Fatal(err)
			}
			step("apart", 3)
			if st := l.stat("work"); !st.Disabled || st.Hits != work || st.Places != 3 {
				t.Errorf("switched off, it has %d hits, want %d, at %d places, disabled %v", st.Hits, work, st.Places, st.Disabled)
			}
			l.finish(sub.pid())
			sub.in.Close()
		})
	}
}

// TestMappedWithoutLoader has a program without a loader map a library's file by
// itself: what waits for it is armed.
func TestMappedWithoutLoader(t *testing.T) {
	prog := fixture.Build(t, "library_mapped.c", "-O1", "-static")
	lib := filepath.Join(t.TempDir(), "libpart.so")
	run(t, "cc", "-O1", "-fPIC", "-shared", "-Wl,-z,noseparate-code", "-o", lib, filepath.Join("..", "testdata", "library_part.c"))
	place := inspectFile(t, lib, "part_work")[0].Lines[0].Addr
	sub := startSubject(t, prog, lib, fmt.Sprint(uint64(place)))
	l := attach(t, sub.pid(), Options{Pending: always}, "p:work "+lib+":part_work n=$arg1")
	step := func(want string) {
		t.Helper()
		if _, err := fmt.Fprintln(sub.in); err != nil {
			t.Fatal(err)
		}
		sub.expect(want)
	}
	step("mapped")
	if !waitUntil(func() bool { return l.stat("work").Places > 0 }) {
		t.Fatal("it was never armed")
	}
	step("145")
	if st := l.stat("work"); st.Hits != 10 || st.Trapped != 0 {
		t.Errorf("%d hits, %d places are breakpoints", st.Hits, st.Trapped)
	}
	l.finish(sub.pid())
	step("145")
	sub.in.Close()
}
