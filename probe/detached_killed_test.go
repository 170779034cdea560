package probe

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"kprobe/internal/untrusted"
)

// detachCalls are what is asked of probes that are left, with those that are there and
// those that aren't: a command, its options, and what follows the process.
var detachCalls = [][2][]string{
	{{"trace", "--detach", "-q"}, {recordedHit}},
	{{"add"}, {"p:rec/more hit2 n=$arg1:u64"}},
	{{"del"}, {"rec/more"}},
	{{"disable"}, {"rec/hit"}},
	{{"enable"}, {"rec/hit"}},
	{{"trace", "--detach", "-q"}, {"p:rec/text hit s=+0($arg1):string", "p:rec/deep hit stack=1"}},
	{{"del"}, {"*"}},
}

// detachCall makes a call's arguments.
func detachCall(n, pid int) []string {
	c := detachCalls[n]
	return slices.Concat(c[0], []string{"-p", strconv.Itoa(pid)}, c[1])
}

// TestDetachKilled kills kprobe at any moment while it leaves probes in a program, adds
// some, takes some out, or all, or two kprobes do so at once: the program runs on, untraced,
// with probes that record what happens, or none; and a third takes out what there is.
func TestDetachKilled(t *testing.T) {
	bin := buildKprobe(t)
	t.Setenv("KPROBE_EVENTS", filepath.Join(t.TempDir(), "events"))
	subjects := []string{"paced"}
	if os.Getenv("KPROBE_TEST_FULL") == "1" {
		subjects = append(subjects, "storm", "jumps")
	}
	for _, how := range subjects {
		t.Run(how, func(t *testing.T) {
			s := startRecorded(t, 2, how)
			rng := rand.New(rand.NewPCG(11, uint64(len(how))))
			s.line()
			begin := time.Now()
			if out, err := exec.Command(bin, detachCall(0, s.pid())...).CombinedOutput(); err != nil {
				t.Fatalf("not killed, it fails: %v\n%s", err, out)
			}
			span := time.Since(begin) * 5 / 4
			left, none, failed := 0, 0, 0
			var err error
			rounds := full(12, 500)
			there := true
			for i := range rounds {
				if !there && rng.IntN(2) == 0 { // so that there is something to change
					if out, err := exec.Command(bin, detachCall(0, s.pid())...).CombinedOutput(); err != nil {
						t.Fatalf("round %d: not killed, it fails: %v\n%s", i, err, out)
					}
				}
				first := detachCall(rng.IntN(len(detachCalls)), s.pid())
				calls := [][]string{first}
				if rng.IntN(3) == 0 {
					calls = append(calls, detachCall(rng.IntN(len(detachCalls)), s.pid()))
				}
				s.killedCalls(bin, calls, i%killKinds, span, rng)
				if there, err = s.looksWhole(); err != nil {
					t.Fatalf("round %d, kind %d, %q: %v; the program: %s", i, i%killKinds, calls, err, endOf(s.pid()))
				}
				if there {
					left++
				} else {
					none++
				}
				if rng.IntN(3) == 0 {
					there = false
					if out, err := exec.Command(bin, "del", "-p", strconv.Itoa(s.pid()), "*").CombinedOutput(); err != nil {
						failed++ // there may be nothing
						t.Logf("del: %s", out)
					}
					checkLeft(t, s.pid(), true)
				}
				if t.Failed() {
					t.Fatalf("round %d, kind %d, %q; the program: %s", i, i%killKinds, calls, endOf(s.pid()))
				}
			}
			t.Logf("%d rounds: probes were left %d times, none %d times; %d times there was nothing to take out", rounds, left, none, failed)
			if _, err = Recover(t.Context(), []int{s.pid()}); err != nil {
				t.Error(err)
			}
			_ = exec.Command(bin, "del", "-p", strconv.Itoa(s.pid()), "*").Run() // there may be nothing
			checkLeft(t, s.pid(), true)
			if got := s.work(); !strings.HasPrefix(got, "done ") {
				t.Errorf("the program printed %q", got)
			}
			s.end()
		})
	}
}

// killedCalls runs commands at once, and kills the first of them after a part of span.
func (s *recorderSubject) killedCalls(bin string, calls [][]string, kind int, span time.Duration, rng *rand.Rand) {
	s.t.Helper()
	var list []*command
	for _, args := range calls {
		list = append(list, startKprobe(s.t, bin, args...))
	}
	time.Sleep(time.Duration(rng.Int64N(int64(span))))
	list[0].kill(kind)
	for _, c := range list {
		select {
		case <-c.done:
		case <-time.After(patient):
			s.t.Fatalf("%q doesn't end: %s", c.cmd.Args, c.stderr.String())
		}
	}
	if !waitUntil(func() bool { return !traced(s.pid()) }) {
		s.t.Fatalf("long after %q the program is traced", calls)
	}
}

// looksWhole has a third kprobe look after the program: whether probes were left in it, which
// record, and that it goes on.
func (s *recorderSubject) looksWhole() (left bool, err error) {
	s.t.Helper()
	if _, err := Recover(context.Background(), []int{s.pid()}); err != nil {
		return false, err
	}
	before := s.begun()
	if !waitUntil(func() bool { return s.begun() > before+100 }) {
		return false, errors.New("the program makes no calls any more")
	}
	var r *Recorder
	slow := func() bool { // the reading itself has a clock, which a busy machine lets run out
		r, err = OpenRecorder(s.pid())
		return !errors.Is(err, untrusted.ErrNoAnswer)
	}
	waitUntil(slow)
	switch {
	case errors.Is(err, ErrNoRecorder):
		checkLeft(s.t, s.pid(), true)
		return false, nil
	case err != nil:
		return false, err
	}
	defer r.Close()
	sink := &recordedSink{t: s.t}
	if err := r.Snapshot(s.t.Context(), 0, sink); err != nil {
		return true, err
	}
	if h, err := r.Held(); err != nil {
		return true, err
	} else if h.Odd > 0 {
		return true, errors.New("there are records that are not what the book says")
	}
	l, err := OpenLive(s.pid())
	if err != nil {
		return true, err
	}
	defer l.Close()
	hits := func() (n uint64, on bool) {
		if err = l.Refresh(); err != nil {
			return 0, false
		}
		for _, st := range l.Stats() {
			if st.Event.Name == "hit" && !st.Disabled {
				n, on = n+st.Hits, true
			}
		}
		return n, on
	}
	first, on := hits()
	if on && !waitUntil(func() bool { n, _ := hits(); return err != nil || n > first }) {
		return true, errors.New("probes that are left record nothing")
	}
	return true, err
}
