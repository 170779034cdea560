//go:build linux && amd64

package tracee

import (
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/internal/procfs"
)

// Many that wait for the tracer's thread don't keep it from its work by waking it: a signal that comes before a system
// call has begun makes it begin anew.
func TestManyWait(t *testing.T) {
	tr, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	const many, reads = 2000, 40_000
	begun, end := make(chan struct{}), time.Now().Add(20*time.Second)
	var wait sync.WaitGroup
	jobs := 0
	for range many {
		wait.Go(func() {
			<-begun
			if err := tr.Do(func() error { jobs++; return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	done := 0
	err = tr.Do(func() error {
		close(begun)
		for tr.queued.Load() < many && time.Now().Before(end) {
		}
		for b := make([]byte, 64); done < reads && time.Now().Before(end); done++ {
			if _, err := procfs.Read("/proc/thread-self/comm", b); err != nil {
				return err
			}
		}
		return nil
	})
	wait.Wait()
	if err != nil || done < reads || jobs != many {
		t.Errorf("the thread has read %d times of %d, and then done %d jobs of %d: %v", done, reads, jobs, many, err)
	}
}

// Nothing waits to look at a task whose creation was reported.
func TestClaimed(t *testing.T) {
	tr, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	err = tr.Do(func() error {
		for range 2 {
			tr.early[unix.Getpid()] = 0x137f
			tr.watchOrphan(unix.Getpid())
		}
		watch := tr.orphans[unix.Getpid()]
		if st, ok := tr.claim(unix.Getpid()); !ok || st != 0x137f || watch.Stop() || len(tr.early)+len(tr.orphans) > 0 {
			t.Errorf("claimed: %#x, %v; %d wait, %d are watched", st, ok, len(tr.early), len(tr.orphans))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
