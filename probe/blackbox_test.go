package probe

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"kprobe/probe/memory"
)

// shmFile names a file on a tmpfs, which goes with the test.
func shmFile(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "kprobe-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "ring")
}

// counted reads how many calls each thread of recorder_calls has begun and how many have
// returned.
func (s *recorderSubject) counted() (begun, returned [64]uint64) {
	s.t.Helper()
	b, err := os.ReadFile(s.counts)
	if err != nil {
		s.t.Fatal(err)
	}
	for i := range begun {
		begun[i], returned[i] = binary.LittleEndian.Uint64(b[64*i:]), binary.LittleEndian.Uint64(b[64*i+8:])
	}
	return begun, returned
}

// TestBlackBox kills a program whose hits are kept in a file, at any moment: the last hit
// of each thread is its last call, or the one before that it was about to make.
func TestBlackBox(t *testing.T) {
	for i, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSEGV, syscall.SIGABRT, syscall.SIGKILL} {
		name := shmFile(t)
		s := startRecorded(t, 2, "paced")
		s.left(Options{Keep: name}, recordedHit)
		time.Sleep(time.Duration(20+7*i) * time.Millisecond)
		if err := s.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		_ = s.cmd.Wait()
		begun, returned := s.counted()
		r, missing, err := OpenBlackBox(name)
		if err != nil || len(missing) > 0 {
			t.Fatal(err, missing)
		}
		sink := &recordedSink{t: t}
		if err := r.Snapshot(t.Context(), 0, sink); err != nil {
			t.Fatal(err)
		}
		held, err := r.Held()
		if err != nil || !held.Gone {
			t.Fatalf("%+v: %v", held, err)
		}
		for th := range uint64(2) {
			if last := sink.last[th]; last > begun[th] || last < returned[th] && held.Stats[0].Lost == 0 {
				t.Errorf("%v: thread %d: the last hit is %d, of %d calls that returned and %d that were begun", sig, th, last, returned[th], begun[th])
			}
		}
		if sink.n == 0 || held.Stats[0].Lost > 0 {
			t.Errorf("%d hits are held, %d lost", sink.n, held.Stats[0].Lost)
		}
		r.Close()
	}
}

// TestBlackBoxRefused: what can't be kept is an error before anything is mapped.
func TestBlackBoxRefused(t *testing.T) {
	s := startRecorded(t, 1)
	for _, name := range []string{filepath.Join(t.TempDir(), "ring"), "/dev/shm", "/proc/ring"} {
		a, err := Attach(t.Context(), []int{s.pid()}, Options{Detach: true, Keep: name})
		if err != nil {
			t.Fatal(err)
		}
		err = a.Arm(t.Context(), parseDefs(t, recordedHit))
		var keep *memory.KeepError
		if !errors.As(err, &keep) {
			t.Errorf("%s: %v", name, err)
		}
		if err := a.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if name != "/dev/shm" {
			if _, err := os.Stat(name); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is left: %v", name, err)
			}
		}
		checkClean(t, s.pid())
	}
	s.line()
	s.work()
	s.end()
}
