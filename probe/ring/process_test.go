package ring

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"kprobe/internal/fixture"
)

// writer is a process that writes records by the protocol that the layout's
// comment states, and a reader of ours.
type writer struct {
	l    *Layout
	r    *Reader
	c    *Counters
	cmd  *exec.Cmd
	seen map[uint32]uint64 // records by probe
	last map[uint32]uint64 // the last number by probe
}

const writerThreads = 8

func startWriter(t *testing.T, mode string, count int) *writer {
	t.Helper()
	bin := fixture.Build(t, "ring_writer.c", "-O2")
	l, err := New(Params{CPUs: 4, MaxProbes: 200, RingSize: 1 << 20, Fallback: 1, Instances: 1, Code: 1})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "file")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(l.Size); err != nil {
		t.Fatal(err)
	}
	b, err := syscall.Mmap(int(f.Fd()), 0, int(l.Size), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Munmap(b) })
	w := &writer{l: l, seen: map[uint32]uint64{}, last: map[uint32]uint64{}}
	if w.r, err = NewReader(b, l, Options{MaxSleep: time.Millisecond, Lateness: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if w.c, err = NewCounters(b, l); err != nil {
		t.Fatal(err)
	}
	args := []string{path}
	for _, v := range []int64{l.PerCPU.Off, int64(l.AreaShift), l.Rings.Off, l.RingStride(), l.RingSize, int64(l.CPUMask), writerThreads, int64(count)} {
		args = append(args, fmt.Sprint(v))
	}
	w.cmd = exec.Command(bin, append(args, mode)...)
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.cmd.Process.Kill(); w.cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "running\n" {
		t.Fatalf("the writer says %q, %v", line, err)
	}
	return w
}

func (w *writer) emit(t *testing.T) func(r *Record) error {
	return func(r *Record) error {
		n := binary.LittleEndian.Uint64(r.Data)
		for i := 0; i < len(r.Data); i += 8 {
			if got := binary.LittleEndian.Uint64(r.Data[i:]); got != n {
				t.Errorf("probe %d, record %d: holds %d at %d", r.ID, n, got, i)
			}
		}
		if r.ID != r.TID && r.ID != r.TID+100 {
			t.Errorf("probe %d written by thread %d", r.ID, r.TID)
		}
		if n <= w.last[r.ID] {
			t.Errorf("probe %d: %d after %d", r.ID, n, w.last[r.ID])
		}
		w.last[r.ID] = n
		w.seen[r.ID]++
		if t.Failed() {
			return errors.New("failed")
		}
		return nil
	}
}

// run reads until stop ends the writer, and then the rest. Meanwhile somebody
// looks on.
func (w *writer) run(t *testing.T, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- w.r.Run(ctx, w.emit(t)) }()
	var looking sync.WaitGroup
	looking.Go(func() { w.look(t, ctx) })
	stop()
	cancel()
	looking.Wait()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if _, err := w.r.Finish(w.emit(t)); err != nil {
		t.Fatal(err)
	}
}

// look has Hits follow the program's own count: whatever that was before is no
// less than what is seen afterwards, and neither goes down.
func (w *writer) look(t *testing.T, ctx context.Context) {
	before := make([]Counts, 201)
	for ctx.Err() == nil {
		w.r.Look()
		for id := range before {
			c := w.c.Probe(uint32(id))
			if calls := w.c.Probe(uint32(id)).Missed; c.Hits > calls || c.Hits < before[id].Hits || c.Recorded+c.Lost > c.Hits {
				t.Errorf("probe %d: %+v after %+v, with %d calls", id, c, before[id], calls)
				return
			}
			before[id] = c
		}
		time.Sleep(time.Millisecond)
	}
}

// balance checks every probe's books against the program's own, which are in
// Missed; open is how many hits of one may have been left before their record's
// length was stored.
func (w *writer) balance(t *testing.T, open uint64) (hits uint64) {
	t.Helper()
	for id := uint32(1); id <= 200; id++ {
		c := w.c.Probe(id)
		if c.Recorded != w.seen[id] || c.Recorded+c.Lost != c.Hits || c.Hits > c.Missed || c.Missed-c.Hits > open {
			t.Errorf("probe %d: %+v, seen %d", id, c, w.seen[id])
		}
		hits += c.Hits
	}
	if s := w.r.Stats(); s.Corrupt != 0 {
		t.Errorf("stats %+v", s)
	}
	t.Logf("%d hits, %+v", hits, w.r.Stats())
	return hits
}

// Eight threads, a profiling signal in each whose handler hits another probe.
func TestProcessHitsAreConserved(t *testing.T) {
	const count = 60000
	w := startWriter(t, "run", count)
	w.run(t, func() {
		if err := w.cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	w.balance(t, 0)
	for id := uint32(1); id <= writerThreads; id++ {
		if c := w.c.Probe(id); c.Hits != count {
			t.Errorf("probe %d: %d hits of %d", id, c.Hits, count)
		}
	}
}

// Killed in the middle of anything: what was finished is read, and each
// thread has at most a hit and a nested one open.
func TestProcessKilled(t *testing.T) {
	for n := range 8 {
		w := startWriter(t, "kill", 0)
		w.run(t, func() {
			time.Sleep(time.Duration(3+7*n) * time.Millisecond)
			w.cmd.Process.Kill()
			w.cmd.Wait()
		})
		w.balance(t, 1)
	}
}

// Handlers that jump out of half a record, which nobody will finish. Nobody
// tells the reader either, so the rings fill up behind; nothing goes unnoticed.
func TestProcessJumpsOut(t *testing.T) {
	w := startWriter(t, "longjmp", 60000)
	w.run(t, func() {
		if err := w.cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	// A hit left before its length was stored is none: a third of those that
	// are left, one in 384 of all.
	w.balance(t, 60000/384+60)
	if s := w.r.Stats(); s.Abandoned < 50 {
		t.Errorf("stats %+v", s)
	}
}
