package probe

import (
	"log/slog"
	"strings"
	"sync"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe/memory"
	"kprobe/symbols"
)

// TestLetGoJoinedCode has a program map code without a file behind kprobe's own, which the kernel makes one mapping of. The
// next look at the process, after a library was loaded, sees that the program may make tasks unseen.
func TestLetGoJoinedCode(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "joined_code.c", "-O1"))
	var mu sync.Mutex
	var said []string
	log := logTo(slog.LevelDebug, func(text string) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, text)
	})
	s, err := Attach(t.Context(), []int{sub.pid()}, Options{LetGo: true, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	l := collecting(t, s)
	t.Cleanup(func() { _ = s.Close(t.Context()) })
	if err := s.Arm(t.Context(), parseDefs(t, "p:one one")); err != nil {
		t.Fatal(err)
	}
	l.run()
	l.untraced(sub.pid())
	var own []symbols.Addr
	err = s.engine.Tracer.Do(func() error {
		for _, a := range s.engine.Targets[sub.pid()].Area.Code.All() {
			own = append(own, a.Start)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// joinable is a mapping of kprobe's code with free memory behind it.
	joinable := func() (at symbols.Mapping) {
		maps, err := symbols.ReadMaps(sub.pid())
		if err != nil {
			t.Fatal(err)
		}
		for i, m := range maps {
			for _, a := range own {
				if m.Contains(a) && m.Exec && m.Inode == 0 && i+1 < len(maps) && maps[i+1].Start >= m.End+memory.PageSize {
					return m
				}
			}
		}
		t.Fatal("no memory is free behind kprobe's code")
		return at
	}
	was := joinable()
	sub.says("map %#x", uint64(was.End))
	if is := joinable(); is.Start != was.Start || is.End != was.End+memory.PageSize {
		t.Fatalf("%v-%v and the page behind it are not one mapping, but %v-%v", was.Start, was.End, is.Start, is.End)
	}
	sub.says("load")
	if err := s.Arm(t.Context(), parseDefs(t, "p:two two")); err != nil {
		t.Fatal(err)
	}
	l.untraced(sub.pid())
	sub.says("call 100")
	sub.says("take %#x", uint64(was.End))
	sum := l.finish(sub.pid())
	for _, st := range sum.Stats {
		if st.Hits != 100 {
			t.Errorf("%s has %d hits, want 100", st.Event.Name, st.Hits)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if text := strings.Join(said, "\n"); !strings.Contains(text, "code without a file, which may make tasks unseen: its hits take locked instructions") {
		t.Errorf("the session says %q", text)
	}
	sub.end()
}
