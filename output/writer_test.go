package output

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// spy is a writer that counts and can fail.
type spy struct {
	mu     sync.Mutex
	text   bytes.Buffer
	writes int
	err    error
	wrote  chan struct{}
}

func (s *spy) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, s.err
	}
	s.writes++
	if s.wrote != nil {
		select {
		case s.wrote <- struct{}{}:
		default:
		}
	}
	return s.text.Write(p)
}

func (s *spy) state() (text string, writes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String(), s.writes
}

func put(t *testing.T, w *Writer, line string) {
	t.Helper()
	if n, err := w.Write([]byte(line)); err != nil || n != len(line) {
		t.Fatalf("Write(%q) = %d, %v", line, n, err)
	}
}

func TestWriterPassesFirstLineOnAtOnce(t *testing.T) {
	s := &spy{}
	w := NewWriter(s)
	put(t, w, "one\n")
	if text, _ := s.state(); text != "one\n" {
		t.Fatalf("after the first line the writer had passed on %q", text)
	}
}

func TestWriterGathersABurst(t *testing.T) {
	s := &spy{wrote: make(chan struct{}, 1)}
	w := NewWriter(s)
	put(t, w, "first\n")
	<-s.wrote
	const lines = 100
	for i := range lines {
		put(t, w, fmt.Sprintf("%d\n", i))
	}
	// Nobody writes and nobody flushes: the timer must.
	select {
	case <-s.wrote:
	case <-time.After(time.Minute):
		t.Fatal("lines of a burst were never passed on")
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	text, writes := s.state()
	if got := strings.Count(text, "\n"); got != lines+1 {
		t.Errorf("%d lines came through, want %d", got, lines+1)
	}
	if writes > lines/2 {
		t.Errorf("%d lines took %d writes", lines+1, writes)
	}
}

func TestWriterIsIdleAgainAfterABurst(t *testing.T) {
	s := &spy{}
	w := NewWriter(s)
	put(t, w, "a\n")
	put(t, w, "b\n")
	idle := func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return !w.busy
	}
	for end := time.Now().Add(time.Minute); !idle(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the writer stayed busy")
		}
	}
	put(t, w, "c\n")
	if text, _ := s.state(); text != "a\nb\nc\n" {
		t.Fatalf("passed on: %q", text)
	}
}

func TestWriterFlushesFullBuffer(t *testing.T) {
	s := &spy{}
	w := NewWriter(s)
	put(t, w, "first\n")
	big := strings.Repeat("x", flushSize) + "\n"
	put(t, w, big)
	if text, _ := s.state(); text != "first\n"+big {
		t.Fatalf("a full buffer was held back: %d bytes passed on", len(text))
	}
}

func TestWriterAfterClose(t *testing.T) {
	s := &spy{}
	w := NewWriter(s)
	put(t, w, "a\n")
	put(t, w, "b\n")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	put(t, w, "c\n")
	if text, _ := s.state(); text != "a\nb\nc\n" {
		t.Fatalf("passed on: %q", text)
	}
}

func TestWriterNamesAReaderThatHasGone(t *testing.T) {
	r, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pw.Close()
	r.Close()
	w := NewWriter(pw)
	if _, err := w.Write([]byte("x\n")); !errors.Is(err, ErrClosed) {
		t.Fatalf("write to a pipe without reader: %v, want ErrClosed", err)
	}
	if _, err := w.Write([]byte("y\n")); !errors.Is(err, ErrClosed) {
		t.Errorf("the second write forgot the failure: %v", err)
	}
	if err := w.Close(); !errors.Is(err, ErrClosed) {
		t.Errorf("Close forgot the failure: %v", err)
	}
}

func TestWriterKeepsOtherFailures(t *testing.T) {
	full := errors.New("disk full")
	s := &spy{err: full}
	w := NewWriter(s)
	if _, err := w.Write([]byte("x\n")); !errors.Is(err, full) || errors.Is(err, ErrClosed) {
		t.Fatalf("Write = %v", err)
	}
	if !errors.Is(w.Err(), full) || !errors.Is(w.Flush(), full) {
		t.Error("the failure was forgotten")
	}
}

// TestWriterRestsAfterAFailure has no timer running behind a closed writer, though
// it holds lines that could not be written.
func TestWriterRestsAfterAFailure(t *testing.T) {
	s := &spy{}
	w := NewWriter(s)
	put(t, w, "a\n")
	put(t, w, "b\n")
	s.mu.Lock()
	s.err = errors.New("disk full")
	s.mu.Unlock()
	if err := w.Close(); !errors.Is(err, s.err) {
		t.Fatalf("Close = %v", err)
	}
	w.tick() // the timer had fired already
	if w.timer.Stop() {
		t.Error("the timer runs on")
	}
}

func TestWriterFromManyGoroutines(t *testing.T) {
	s := &spy{}
	w := NewWriter(s)
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			for i := range 500 {
				if _, err := fmt.Fprintf(w, "%d-%d\n", g, i); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	text, _ := s.state()
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		seen[line] = true
	}
	if len(seen) != 4000 {
		t.Errorf("%d different whole lines, want 4000", len(seen))
	}
}
