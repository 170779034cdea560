//go:build linux && amd64

package tracee

import (
	"bytes"
	"context"
	"errors"
	"os"
	"runtime"
	"testing"

	"kprobe/internal/procfs"
	"kprobe/symbols"
)

// Where /proc/PID/mem can't be written, words are poked through a stopped
// thread, into read-only code too.
func TestWriteWithoutMemFile(t *testing.T) {
	exe := events(t)
	g := spawn(t, exe, "idle")
	tr := newTracer(t)
	p := attach(t, tr, g.pid)
	running(t, tr, &recorder{t: t})
	f, err := os.Open(procfs.Process(g.pid).Path("mem"))
	if err != nil {
		t.Fatal(err)
	}
	do(t, tr, func() error {
		p.closeMem()
		p.mem = f
		return nil
	})
	site := siteOf(t, exe)
	if err := tr.Do(func() error { return p.WriteMemory([]byte{0x90}, site) }); err == nil {
		t.Error("a running process was poked")
	}
	do(t, tr, func() error {
		return p.WithStopped(context.Background(), func([]*Thread) error {
			for at := site &^ 15; at < site&^15+9; at++ {
				for n := 1; n <= 17; n += 4 {
					around := make([]byte, 48)
					if _, err := p.ReadMemory(around, at-16); err != nil {
						return err
					}
					want := bytes.Clone(around)
					text := bytes.Repeat([]byte{0xa5}, n)
					copy(want[16:], text)
					if err := p.WriteMemory(text, at); err != nil {
						return err
					}
					got := make([]byte, len(want))
					if _, err := p.ReadMemory(got, at-16); err != nil {
						return err
					}
					if !bytes.Equal(got, want) {
						t.Errorf("%d bytes at %v: % x, want % x", n, at, got, want)
					}
					if err := p.WriteMemory(around, at-16); err != nil {
						return err
					}
				}
			}
			if err := p.WriteMemory([]byte{1}, symbols.Addr(16)); err == nil || errors.Is(err, ErrGone) {
				t.Errorf("write at 16: %v", err)
			}
			return nil
		})
	})
	if _, status := g.rest(); status != 0 {
		t.Errorf("status %d", status)
	}
}

// A breakpoint's stop costs no allocation; what remains is the tracer's look
// at the thread's CPU every so often, and other goroutines.
func TestStopsDoNotAllocate(t *testing.T) {
	exe := events(t)
	g := spawn(t, exe, "loop", "1")
	tr := newTracer(t)
	p := attach(t, tr, g.pid)
	b := newBreakpoint(t, siteOf(t, exe))
	const warm, hits = 200, 2000
	var before, after runtime.MemStats
	n, seen := 0, make(chan bool)
	brk := b.brk
	b.brk = func(th *Thread) Verdict {
		switch n++; n {
		case warm:
			runtime.ReadMemStats(&before)
		case warm + hits:
			runtime.ReadMemStats(&after)
			close(seen)
		}
		return brk(th)
	}
	stop := running(t, tr, b)
	do(t, tr, func() error { return b.arm(p) })
	<-seen
	do(t, tr, func() error { return b.leave(p) })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if got := after.Mallocs - before.Mallocs; got > hits/8 {
		t.Errorf("%d allocations in %d stops", got, hits)
	}
	if _, status := g.rest(); status != 0 {
		t.Errorf("status %d", status)
	}
}
