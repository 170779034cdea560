package probe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

// TestLiveAsks has a second kprobe add events to a session and remove them, with
// errors that say what the session's own would.
func TestLiveAsks(t *testing.T) {
	prog := fixture.Build(t, "probe_calls.c", "-O1", "-pthread")
	sub := startSubject(t, prog, "work", "1000")
	s := attach(t, sub.pid(), Options{}, "p:first work n=$arg1")
	running(t, s.s)
	l := openedLive(t, sub.pid())
	ctx := t.Context()
	start := time.Now()
	if err := l.Add(ctx, parseDefs(t, "p:web/x work n=$arg1", "r:web/y work v=$retval")); err != nil {
		t.Fatal(err)
	}
	t.Logf("added in %v", time.Since(start))
	if n := len(l.Stats()); n != 3 {
		t.Errorf("%d events are seen from beside", n)
	}
	sub.work()
	if err := l.Remove(ctx, []string{"web/x", "web/y"}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"first", "x", "y"} {
		if st := s.stat(name); st.Hits != 1000 || name != "first" && st.Recorded != 1000 {
			t.Errorf("%s: %d hits, %d recorded", name, st.Hits, st.Recorded)
		}
	}
	if err := l.Remove(ctx, []string{"web/x"}); !errors.Is(err, ErrNoEvent) {
		t.Errorf("removed again: %v", err)
	}
	for _, text := range []string{"p:z no_such_function", "p:z work+1", "p:z work n=@no_such_variable", "p:first work k=$arg2"} {
		good := parseDefs(t, "p:good work")[0]
		bad := parseDefs(t, text)[0]
		_, mine := s.s.Add(ctx, []*fetch.Def{good, bad})
		theirs := l.Add(ctx, []*fetch.Def{good, bad})
		var a, b *DefError
		if !errors.As(mine, &a) || !errors.As(theirs, &b) || b.Def != bad || a.Err.Error() != b.Err.Error() {
			t.Errorf("%s: %v, from beside: %v", text, mine, theirs)
			continue
		}
		var sa, sb *fetch.SyntaxError
		if errors.As(mine, &sa) != errors.As(theirs, &sb) || sa != nil && (sa.Code != sb.Code || sa.Caret() != sb.Caret()) {
			t.Errorf("%s: %v and %v", text, sa, sb)
		}
		var ba, bb *BoundaryError
		if errors.As(mine, &ba) != errors.As(theirs, &bb) || errors.Is(mine, symbols.ErrNoSymbol) != errors.Is(theirs, symbols.ErrNoSymbol) ||
			errors.Is(mine, symbols.ErrNotMapped) != errors.Is(theirs, symbols.ErrNotMapped) {
			t.Errorf("%s: %v is of another kind than %v", text, theirs, mine)
		}
	}
	if n := len(s.s.Events()); n != 1 {
		t.Errorf("%d events after definitions that were wrong", n)
	}
	// What the process has not mapped waits, which at home it must be let to do.
	waits := parseDefs(t, "p:web/waits libnothing:f", "p:web/waits work")
	if _, err := s.s.Add(ctx, waits); !errors.Is(err, symbols.ErrNotMapped) {
		t.Errorf("it waits at home: %v", err)
	}
	if err := l.Add(ctx, waits); err != nil {
		t.Fatal(err)
	}
	places := func() (armed, waiting int) {
		if err := l.Refresh(); err != nil {
			t.Error(err)
		}
		for _, p := range l.Probes() {
			if p.Event == "waits" && p.Waiting {
				waiting++
			} else if p.Event == "waits" {
				armed++
			}
		}
		return armed, waiting
	}
	deletions := parseDefs(t, "-:waits work", "-:web/nothing", "-:web/waits libnothing:f", "-:web/waits "+prog+":work")
	for _, none := range [][]*fetch.Def{{deletions[0], deletions[1]}, {deletions[1]}} {
		var at *DefError
		if err := l.Delete(ctx, none); !errors.Is(err, ErrNoEvent) || !errors.As(err, &at) || at.Def != deletions[1] {
			t.Errorf("nothing is to be deleted: %v", err)
		}
		if armed, waiting := places(); armed != 1 || waiting != 1 {
			t.Errorf("%d places are armed, %d wait", armed, waiting)
		}
	}
	for i, d := range []*fetch.Def{deletions[3], deletions[2]} {
		if err := l.Delete(ctx, []*fetch.Def{d}); err != nil {
			t.Fatal(err)
		}
		if armed, waiting := places(); armed != 0 || waiting != 1-i {
			t.Errorf("after %s: %d places are armed, %d wait", d.Text, armed, waiting)
		}
	}
	if n := len(s.s.Events()); n != 1 {
		t.Errorf("%d events after the deletions", n)
	}
	s.finish(sub.pid())
	if err := l.Add(ctx, parseDefs(t, "p:late work")); !errors.Is(err, ErrNotTraced) {
		t.Errorf("after the session: %v", err)
	}
	sub.end()
}

// TestLiveAskedByMany has several ask at once, one that dies with a request in
// the mailbox, and one that writes nonsense.
func TestLiveAskedByMany(t *testing.T) {
	prog := fixture.Build(t, "probe_calls.c", "-O1", "-pthread")
	sub := startSubject(t, prog, "work", "1000")
	s := attach(t, sub.pid(), Options{}, "p:first work n=$arg1")
	running(t, s.s)
	var wg sync.WaitGroup
	for k := range 6 {
		l := openedLive(t, sub.pid())
		wg.Go(func() {
			for i := range 8 {
				name := fmt.Sprintf("e%d_%d", k, i)
				d, err := fetch.Parse("p:many/" + name + " work n=$arg1")
				if err == nil {
					err = l.Add(t.Context(), []*fetch.Def{d})
				}
				if err == nil && i%2 == 1 {
					err = l.Remove(t.Context(), []string{"many/" + name})
				}
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	rogue := openedLive(t, sub.pid())
	for i := range 20 {
		unlock, err := rogue.peer().Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		body := []byte(fmt.Sprintf(`{"op":"nonsense %d"`, i))
		if err := (&ring.Request{ID: rand.Uint64() | 1, Body: body}).Post(rogue.file(), rogue.snap.Layout); err != nil {
			t.Error(err)
		}
		unlock() // and is never seen again
		time.Sleep(5 * time.Millisecond)
	}
	wg.Wait()
	if n := len(s.s.Events()); n != 1+6*4 {
		t.Errorf("%d events", n)
	}
	sub.work()
	for _, st := range s.s.Stats() {
		want := uint64(1000)
		if st.Places == 0 {
			want = 0
		}
		if st.Hits != want {
			t.Errorf("%s: %d hits, want %d", st.Event.Name, st.Hits, want)
		}
	}
	s.finish(sub.pid())
	sub.end()
}

// TestLiveNoAnswer asks a session that is armed and does not run.
func TestLiveNoAnswer(t *testing.T) {
	prog := fixture.Build(t, "probe_calls.c", "-O1", "-pthread")
	sub := startSubject(t, prog, "work", "10")
	s, err := Attach(t.Context(), []int{sub.pid()}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	if err := s.Arm(t.Context(), parseDefs(t, "p work")); err != nil {
		t.Fatal(err)
	}
	l := openedLive(t, sub.pid())
	err = l.Add(t.Context(), parseDefs(t, "p:x work"))
	if !errors.Is(err, ErrNoAnswer) || !strings.Contains(err.Error(), fmt.Sprintf("kill -CONT %d", os.Getpid())) {
		t.Errorf("no answer is %v", err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	sub.work()
	sub.end()
}

// TestTwoTerminals traces well over 100,000 hits a second and looks, switches,
// adds and removes from beside all the time: both sides count the same, and
// what the program says.
func TestTwoTerminals(t *testing.T) {
	sub := startStorm(t, "2")
	s, c := engage(t, sub.pid(), Options{}, "p:always f3 a=$arg1", "p:switched f1", "r:back f4")
	running(t, s.s)
	l := openedLive(t, sub.pid())
	is := func(name string) func(string, string) bool {
		return func(_, event string) bool { return event == name }
	}
	sub.line()
	start, ctx := time.Now(), t.Context()
	for i := range full(25, 1000) {
		if err := l.Add(ctx, parseDefs(t, fmt.Sprintf("p:more/a%d f3+0 a=$arg1", i), fmt.Sprintf("p:more/b%d f0+1", i))); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Enable(is("switched"), i%2 == 0); err != nil {
			t.Fatal(err)
		}
		if n := len(l.Probes()); n != 5 {
			t.Errorf("%d places", n)
		}
		for _, p := range l.Probes() {
			if p.Disabled != (p.Event == "switched" && i%2 != 0) {
				t.Errorf("%s: disabled is %v", p.Event, p.Disabled)
			}
		}
		if err := l.Remove(ctx, []string{fmt.Sprintf("more/a%d", i), fmt.Sprintf("more/b%d", i)}); err != nil {
			t.Fatal(err)
		}
	}
	took := time.Since(start)
	sub.stop()
	for _, name := range []string{"always", "switched", "back"} {
		refreshed(t, l, name, s.stat(name).Hits)
	}
	s.finish(sub.pid())
	sub.end()
	if st := s.stat("always"); st.Hits != sub.calls[3] {
		t.Errorf("%d hits of %d calls", st.Hits, sub.calls[3])
	}
	hits, recorded := uint64(0), uint64(0)
	for _, st := range s.s.Stats() {
		hits, recorded = hits+st.Hits, recorded+st.Recorded
	}
	if got := c.hits.Load(); got != recorded {
		t.Errorf("%d hits came out, %d are counted as recorded", got, recorded)
	}
	t.Logf("%d hits in %v, %.0f/s", hits, took, float64(hits)/took.Seconds())
}
