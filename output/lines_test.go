package output

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"kprobe/fetch"
	"kprobe/probe/results"
	"kprobe/symbols"
)

// sometimes is a writer that takes its time now and then.
type sometimes struct {
	bytes.Buffer
	writes int
}

func (s *sometimes) Write(p []byte) (int, error) {
	if s.writes++; s.writes%7 == 0 {
		time.Sleep(time.Millisecond)
	}
	return s.Buffer.Write(p)
}

// Hits that workers format are written as one formatter would, in order, whatever
// comes fast and slowly, and however often the hit and its data are used again.
func TestWorkersWriteInOrder(t *testing.T) {
	entry, back := busy(t)
	for _, form := range []Form{Text, JSON} {
		var want bytes.Buffer
		got := &sometimes{}
		w := NewWriter(got)
		tr := &Trace{Writer: w, Format: Formatter{Form: form}, Workers: 4}
		one := Formatter{Form: form}
		rnd := rand.New(rand.NewPCG(1, uint64(form)))
		var data []byte
		var stack []symbols.StackFrame
		at := uint64(1e9)
		for i := range 5000 {
			from := entry
			if rnd.IntN(3) == 0 {
				from = back
			}
			at += rnd.Uint64N(2 * calm)
			data = append(data[:0], from.Data...)
			h := *from
			h.Data, h.Time, h.TID = data, at, i
			if i%5 == 0 {
				stack = append(stack[:0], symbols.StackFrame{Addr: symbols.Addr(i)}, symbols.StackFrame{Addr: symbols.Addr(i + 1), Call: true})
				h.Stack = stack
			}
			line, err := one.Append(nil, &h)
			if err != nil {
				t.Fatal(err)
			}
			want.Write(line)
			if err := tr.Hit(&h); err != nil {
				t.Fatal(err)
			}
			if i%1000 == 0 {
				time.Sleep(3 * BatchDelay) // the batch is handed on by itself
			}
		}
		if err := errors.Join(tr.Close(), w.Close()); err != nil {
			t.Fatal(err)
		}
		if tr.Printed() != 5000 || !bytes.Equal(got.Bytes(), want.Bytes()) {
			t.Errorf("form %d: %d printed; %d bytes, want %d", form, tr.Printed(), got.Len(), want.Len())
		}
	}
}

// A hit that others don't follow is written without them.
func TestWorkersDontKeepAHit(t *testing.T) {
	entry, _ := busy(t)
	var mu sync.Mutex
	var lines int
	w := NewWriter(writerFunc(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		lines += bytes.Count(p, []byte{'\n'})
		return len(p), nil
	}))
	tr := &Trace{Writer: w, Workers: 2}
	for range 3 {
		if err := tr.Hit(entry); err != nil {
			t.Fatal(err)
		}
	}
	for {
		mu.Lock()
		n := lines
		mu.Unlock()
		if n == 3 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err := errors.Join(tr.Close(), w.Close()); err != nil {
		t.Error(err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// A failure comes back from a later hit, and Close ends what waits.
func TestWorkersFail(t *testing.T) {
	entry, _ := busy(t)
	full := errors.New("the disk is full")
	w := NewWriter(writerFunc(func(p []byte) (int, error) { return 0, full }))
	tr := &Trace{Writer: w, Workers: 2}
	var err error
	for err == nil {
		err = tr.Hit(entry)
	}
	if !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
	_ = tr.Close() // says the same, if a worker has met it

	bad := *entry
	bad.Data = bad.Data[:1]
	var got bytes.Buffer
	w = NewWriter(&got)
	tr = &Trace{Writer: w, Workers: 2}
	hits := slices.Repeat([]*results.Hit{entry}, 10)
	for _, h := range append(hits, &bad, entry) {
		if err := tr.Hit(h); err != nil {
			t.Fatal(err)
		}
	}
	if err := tr.Close(); err == nil {
		t.Error("a record that is cut was printed")
	}
	if err := w.Close(); err != nil || bytes.Count(got.Bytes(), []byte{'\n'}) != 10 {
		t.Errorf("%v; written were:\n%s", err, &got)
	}
}

// Distances are from one line to the next, though there are workers.
func TestDistances(t *testing.T) {
	s := newScene(t)
	clock, err := NewClock("delta", 0, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	for _, form := range []Form{Text, JSON} {
		var got bytes.Buffer
		w := NewWriter(&got)
		tr := &Trace{Writer: w, Format: Formatter{Form: form, Clock: clock}, Workers: 2}
		h := s.hit(t, "p:ev work", fetch.Regs{}, nil)
		for i := range uint64(500) {
			h.Time = 1_000_000_000 + i*i*1000
			if err := tr.Hit(h); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(tr.Close(), w.Close()); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(got.String()), "\n")
		for i, line := range lines {
			if want := fmt.Sprintf("0.%06d", max(2*i-1, 0)); !strings.Contains(line, want) || len(lines) != 500 {
				t.Fatalf("line %d of %d is %q, want %s", i, len(lines), line, want)
			}
		}
	}
}

// Limit ends the trace with the last hit, which is written.
func TestWorkersLimit(t *testing.T) {
	entry, _ := busy(t)
	var got bytes.Buffer
	w := NewWriter(&got)
	tr := &Trace{Writer: w, Workers: 2, Limit: 300}
	n := 0
	var err error
	for err == nil {
		err = tr.Hit(entry)
		n++
	}
	if !errors.Is(err, results.ErrStop) || errors.Join(tr.Close(), w.Close()) != nil || n != 300 || bytes.Count(got.Bytes(), []byte{'\n'}) != 300 {
		t.Errorf("%v after %d hits, %d lines", err, n, bytes.Count(got.Bytes(), []byte{'\n'}))
	}
}
