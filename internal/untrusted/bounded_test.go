package untrusted

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pipe makes a pipe of which reads wait in the kernel.
func pipe(t *testing.T) (from, to int) {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fds[0]) })
	return fds[0], fds[1]
}

// TestBounded: what doesn't answer is left to itself, and only so many are.
func TestBounded(t *testing.T) {
	from, to := pipe(t)
	dropped := make(chan int, maxStuck)
	read := func(v int) func() (int, error) {
		return func() (int, error) { _, _ = unix.Read(from, make([]byte, 1)); return v, nil }
	}
	for i := range maxStuck {
		if _, waited, err := bounded(time.Millisecond, read(i), func(v int) { dropped <- v }); err != ErrNoAnswer || waited < time.Millisecond {
			t.Fatal(waited, err)
		}
	}
	if _, _, err := bounded(time.Hour, func() (int, error) { return 1, nil }, nil); err != ErrNoAnswer {
		t.Errorf("one more is tried: %v", err)
	}
	_ = unix.Close(to) // every read ends
	for range maxStuck {
		<-dropped
	}
	if v, _, err := bounded(time.Hour, func() (int, error) { return 1, nil }, nil); v != 1 || err != nil {
		t.Errorf("afterwards: %d, %v", v, err)
	}
}

// TestBoundedWork: a call that works, or that waits for its turn to run, is waited for
// longer than one that waits for an answer.
func TestBoundedWork(t *testing.T) {
	const most = 50 * time.Millisecond
	for name, do := range map[string]func(end time.Time){
		"works": func(end time.Time) {
			for time.Now().Before(end) {
			}
		},
		"waits for a goroutine": func(end time.Time) { <-time.After(time.Until(end)) },
	} {
		v, waited, err := bounded(most, func() (int, error) { do(time.Now().Add(3 * most)); return 1, nil }, func(int) {})
		if v != 1 || err != nil {
			t.Errorf("%s: %d, %v after %v of waiting", name, v, err, waited)
		}
	}
	from, to := pipe(t)
	dropped := make(chan struct{})
	if _, _, err := bounded(most, func() (int, error) { return unix.Read(from, make([]byte, 1)) }, func(int) { close(dropped) }); err != ErrNoAnswer {
		t.Errorf("a call that nobody answers: %v", err)
	}
	_ = unix.Close(to)
	<-dropped
}

// TestBoundedLongest: a call that never ends is given up, whatever it does.
func TestBoundedLongest(t *testing.T) {
	end, dropped := make(chan struct{}), make(chan struct{})
	if _, waited, err := bounded(time.Millisecond, func() (int, error) { <-end; return 1, nil }, func(int) { close(dropped) }); err != ErrNoAnswer {
		t.Errorf("%v after %v of waiting", err, waited)
	}
	close(end)
	<-dropped
}
