package probe

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"kprobe/fetch"
	"kprobe/internal/fixture"
)

// TestDeaths kills programs of threads, goroutines and a runtime in which a probe was left, its
// hits in a file, by a fault's signal, by abort's and by SIGKILL in turn, at any moment, in every other
// round while they get signals and fork all the time:
// the last hit that the file has of each is the last call that it counted itself, or
// the one that it was about to make.
func TestDeaths(t *testing.T) {
	t.Setenv("GOTRACEBACK", "none")
	for _, p := range []struct {
		name    string
		threads int
		def     string
		start   func(more ...string) *subject
	}{
		{"threads", 2, recordedHit, func(more ...string) *subject {
			more = append(more, "paced")
			return startSubject(t, fixture.Build(t, "recorder_calls.c", "-O2", "-pthread"), append([]string{"2"}, more...)...)
		}},
		{"go", 2, "p:rec/hit main.hit n=%ax:u64 check=%bx:u64 thread=%cx:u64", func(more ...string) *subject {
			return startSubject(t, fixture.Build(t, filepath.Join("goroutines", "recorder_goroutines.go")), append([]string{"2"}, more...)...)
		}},
		{"node", 1, "p:rec/read uv_fs_read n=%r9:u64 if n < 1000000000", func(more ...string) *subject {
			return startSubject(t, fixture.NeedTool(t, "node"), append([]string{filepath.Join(fixture.Root(), "testdata", "recorder_reads.js")}, more...)...)
		}},
	} {
		t.Run(p.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(17, uint64(p.threads)))
			var hits uint64
			last := 0 // how often the last hit was a call that had not returned
			rounds := full(4, 1000)
			for i := range rounds {
				sig := []syscall.Signal{syscall.SIGSEGV, syscall.SIGABRT, syscall.SIGKILL}[i%3]
				name, counts := shmFile(t), filepath.Join(t.TempDir(), "counts")
				args := []string{counts}
				if i%2 == 1 {
					args = append(args, "storm")
				}
				s := &recorderSubject{subject: p.start(args...), threads: p.threads, counts: counts}
				s.t = t
				s.left(Options{Keep: name}, p.def)
				time.Sleep(time.Duration(rng.IntN(20_000)) * time.Microsecond)
				if err := s.cmd.Process.Signal(sig); err != nil {
					t.Fatal(err)
				}
				_ = s.cmd.Wait() // by that signal
				begun, returned := s.counted()
				r, _, err := OpenBlackBox(name)
				if err != nil {
					t.Fatal(err)
				}
				sink := &lastSink{recordedSink: recordedSink{t: t}}
				if err := r.Snapshot(t.Context(), 0, sink); err != nil {
					t.Fatal(err)
				}
				held, err := r.Held()
				if err != nil || !held.Gone || held.Stats[0].Lost > 0 {
					t.Fatalf("%+v: %v", held, err)
				}
				r.Close()
				for th := range uint64(p.threads) {
					n := sink.last[th]
					if n > begun[th] || n < returned[th] {
						t.Errorf("round %d, %v: the last hit of %d is %d, of %d calls that returned and %d that were begun", i, sig, th, n, returned[th], begun[th])
					}
					if n > returned[th] {
						last++
					}
				}
				hits += sink.n
			}
			t.Logf("%d rounds, %d hits, %d times the last was a call that had not returned", rounds, hits, last)
		})
	}
}

// lastSink is recordedSink for hits that say their number alone, too.
type lastSink struct {
	recordedSink
}

func (l *lastSink) Hit(h *Hit) error {
	if h.Event.Name == "hit" {
		return l.recordedSink.Hit(h)
	}
	var err error
	if l.vals, err = h.Program.Decode(h.Data, l.vals); err != nil {
		return err
	}
	n := l.vals[0].Int
	if i := slices.IndexFunc(l.vals, func(v fetch.Value) bool { return v.Fault }); i >= 0 || n <= l.last[0] {
		return fmt.Errorf("read %d behind read %d", n, l.last[0])
	}
	if l.last == nil {
		l.last = map[uint64]uint64{}
	}
	l.last[0] = n
	l.n++
	return nil
}
