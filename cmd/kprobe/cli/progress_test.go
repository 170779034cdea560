package cli

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"kprobe/cmd/kprobe/facts"
	"kprobe/probe"
)

// screen is standard error of a command that a test watches.
type screen struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// slowFake is an engine that takes its time to attach.
type slowFake struct {
	*fake
	attach func(ctx context.Context, o probe.Options) error
}

func (f *slowFake) Attach(ctx context.Context, pids []int, o probe.Options) (Session, error) {
	if err := f.attach(ctx, o); err != nil {
		return nil, err
	}
	return f.fake.Attach(ctx, pids, o)
}

// TestProgress: on a terminal a command that takes long says what it does and how
// far it is; the line is erased before anything else is printed. In a pipe, and with
// -q, there is none.
func TestProgress(t *testing.T) {
	run := func(watched bool, attach func(*screen, probe.Options), args ...string) (shown string) {
		t.Helper()
		var out bytes.Buffer
		err := new(screen)
		engine := &slowFake{&fake{}, func(_ context.Context, o probe.Options) error { attach(err, o); return nil }}
		d := &Deps{In: strings.NewReader(""), Out: &out, Err: err, Watched: watched, Engine: engine,
			Proc: facts.Live(), Now: func() (uint64, time.Time) { return 0, time.Time{} }}
		if status := Execute(context.Background(), append([]string{"trace", "-p", "4711"}, args...), d); status != 0 {
			t.Fatalf("status %d: %s", status, err)
		}
		return err.String()
	}
	text := run(true, func(s *screen, o probe.Options) {
		o.Progress("planning jumps", 1200, 4800)
		for end := time.Now().Add(time.Minute); !strings.Contains(s.String(), "1,200"); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("no progress: %q", s)
			}
		}
	}, "handle")
	const line = "\r\x1b[Kkprobe: planning jumps: 1,200 of 4,800 (25 %)"
	at := strings.LastIndex(text, line)
	if at < 0 || !strings.HasPrefix(text[at+len(line):], eraseLine) || strings.Contains(text[at+len(line)+len(eraseLine):], "\x1b") {
		t.Errorf("%q", text)
	}
	for _, c := range []struct {
		watched bool
		args    []string
	}{{false, []string{"handle"}}, {true, []string{"-q", "handle"}}} {
		text := run(c.watched, func(_ *screen, o probe.Options) {
			if o.Progress != nil {
				t.Errorf("watched %v, %q: progress is asked for", c.watched, c.args)
			}
		}, c.args...)
		if strings.Contains(text, "\x1b") {
			t.Errorf("watched %v, %q: %q", c.watched, c.args, text)
		}
	}
}

// TestBusyErases: a message erases the line of progress, which comes back.
func TestBusyErases(t *testing.T) {
	s := new(screen)
	m := &messages{w: s}
	m.show("busy")
	m.say("word")
	m.show("busy")
	m.show("busy")
	m.show("")
	m.show("")
	if want := eraseLine + "busy" + eraseLine + "kprobe: word\n" + eraseLine + "busy" + eraseLine; s.String() != want {
		t.Errorf("%q, want %q", s, want)
	}
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 78138: "78,138", 1234567: "1,234,567"} {
		if got := grouped(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
}
