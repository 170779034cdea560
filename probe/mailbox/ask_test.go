package mailbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/probe/memory"
	"kprobe/probe/ring"
)

// noProcess is the number of no process.
const noProcess = 1<<30 + 1

// peer is a session whose memory file is a file of this test, and its mailbox.
func peer(t *testing.T) (*Peer, *ring.Mailbox) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "mem"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	const at = 4096 // where a process has it mapped
	if err := f.Truncate(at + ring.MailboxSize); err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(int(f.Fd()), at, ring.MailboxSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	box, err := ring.NewMailbox(mem, ownLayout)
	if err != nil {
		t.Fatal(err)
	}
	return &Peer{
		PID: 1, Tracer: noProcess, File: memory.Window{Mem: f, At: at}, Layout: ownLayout,
		Alive: func() error { return nil }, Ended: func(err error) error { return err },
	}, box
}

// served answers what is posted in a mailbox with the event that was asked for, until the
// test's end.
func served(t *testing.T, box *ring.Mailbox) {
	done, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for ; ; time.Sleep(time.Millisecond) {
			select {
			case <-done:
				return
			default:
			}
			_, err := Serve(box, func() error { return nil }, func(r *ring.Request) []byte {
				q, err := ReadRequest(r.Body)
				if err != nil {
					return []byte(err.Error())
				}
				return []byte(strings.Join(q.Events, ","))
			}, func(err error) []byte { return []byte(err.Error()) })
			if err != nil {
				t.Error(err)
			}
		}
	}()
	t.Cleanup(func() { close(done); <-over })
}

// TestAsk: several that ask at once get each their own answer.
func TestAsk(t *testing.T) {
	p, box := peer(t)
	served(t, box)
	answers := make(chan error)
	const askers = 4
	for k := range askers {
		f, err := os.OpenFile(p.File.Mem.Name(), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		mine := *p
		mine.File.Mem = f // a lock is of an open file
		go func() {
			for i := range 5 {
				want := fmt.Sprintf("of%d/e%d", k, i)
				if got, err := mine.Ask(t.Context(), &Request{Op: Remove, Events: []string{want}}); err != nil || string(got) != want {
					answers <- fmt.Errorf("%q, %v; want %s", got, err, want)
					return
				}
			}
			answers <- nil
		}()
	}
	for range askers {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
}

// TestAskOwn: where kprobe's own memory has a mailbox for the process, that one is asked.
func TestAskOwn(t *testing.T) {
	p, _ := peer(t)
	p.Tracer, p.PID = os.Getpid(), noProcess
	own, err := NewOwn(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { runtime.KeepAlive(own) }) // until nobody serves it any more
	other, err := NewOwn(p.PID + 1)
	if err != nil {
		t.Fatal(err)
	}
	served(t, own.Mailbox)
	if got, err := p.Ask(t.Context(), &Request{Events: []string{"a/b"}}); err != nil || string(got) != "a/b" {
		t.Errorf("%q, %v", got, err)
	}
	if other.Posted() {
		t.Error("the mailbox for another process was asked")
	}
}

// TestAskNobody: who gets no answer learns why.
func TestAskNobody(t *testing.T) {
	gone := errors.New("it is over")
	soon := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	t.Run("stopped", func(t *testing.T) {
		p, box := peer(t)
		_, err := p.Ask(soon(), &Request{})
		if !errors.Is(err, ErrNoAnswer) || !strings.Contains(err.Error(), fmt.Sprintf("kill -CONT %d", p.Tracer)) {
			t.Errorf("%v", err)
		}
		if !box.Posted() {
			t.Error("nothing was asked")
		}
	})
	t.Run("over", func(t *testing.T) {
		p, _ := peer(t)
		p.Alive = func() error { return gone }
		if _, err := p.Ask(t.Context(), &Request{}); !errors.Is(err, gone) {
			t.Errorf("%v", err)
		}
	})
	t.Run("unmapped", func(t *testing.T) {
		p, _ := peer(t)
		p.Ended = func(error) error { return gone }
		p.File.At = 1 << 62
		if _, err := p.Ask(t.Context(), &Request{}); !errors.Is(err, gone) {
			t.Errorf("%v", err)
		}
	})
	t.Run("too much", func(t *testing.T) {
		p, box := peer(t)
		_, err := p.Ask(t.Context(), &Request{Events: []string{strings.Repeat("e", ring.MaxRequest)}})
		if !errors.Is(err, ring.ErrMail) || box.Posted() {
			t.Errorf("%v", err)
		}
	})
	t.Run("damaged", func(t *testing.T) {
		p, box := peer(t)
		p.Alive = func() error { // between two looks at the answer
			_, err := Serve(box, func() error { return nil }, func(*ring.Request) []byte { return []byte("all is well") }, nil)
			if err != nil {
				return err
			}
			_, err = p.File.WriteAt([]byte{0xff}, ring.MailboxSize-ring.MaxAnswer)
			return err
		}
		if _, err := p.Ask(t.Context(), &Request{}); !errors.Is(err, ring.ErrCorrupt) {
			t.Errorf("%v", err)
		}
	})
	t.Run("locked", func(t *testing.T) {
		p, box := peer(t)
		f, err := os.OpenFile(p.File.Mem.Name(), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		other := *p
		other.File.Mem = f
		unlock, err := other.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Ask(soon(), &Request{}); !errors.Is(err, ErrNoAnswer) || box.Posted() {
			t.Errorf("%v", err)
		}
		unlock()
		if unlock, err = p.Lock(soon()); err != nil {
			t.Fatal(err)
		}
		unlock()
	})
}
