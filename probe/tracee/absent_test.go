//go:build linux && amd64

package tracee

import (
	"context"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// TestMuchAbsent: much memory that was never touched is read, however little time a
// page has after others that did not come, and takes longer.
func TestMuchAbsent(t *testing.T) {
	const size = 256 << 20
	g := spawn(t, fixture.Build(t, "tracee_busy.c", "-O1"), "2")
	tr := newTracer(t)
	p := attach(t, tr, g.pid)
	at, err := p.Syscall(context.Background(), nil, unix.SYS_MMAP, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, ^uintptr(0), 0)
	if err != nil {
		t.Fatal(err)
	}
	p.absent.late.Store(16)
	start := time.Now()
	if n, err := p.ReadMemory(make([]byte, size), symbols.Addr(at)); n != size || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	t.Logf("%v", time.Since(start))
}

// A reader that has no processor of Go's is not one that waits for a page; one that
// waits in its system call is.
func TestRuns(t *testing.T) {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = unix.Close(pipe[1]), unix.Close(pipe[0]) }()
	turns := 0
	for name, wait := range map[string]func(<-chan struct{}){
		"for Go":    func(c <-chan struct{}) { <-c },
		"in a call": func(<-chan struct{}) { _, _ = unix.Read(pipe[0], make([]byte, 1)) },
		"for nobody": func(c <-chan struct{}) { // it runs
			for {
				select {
				case <-c:
					return
				default:
					turns++
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			tids, over, ended := make(chan int), make(chan struct{}), make(chan struct{})
			go func() {
				defer close(ended)
				runtime.LockOSThread()
				tids <- unix.Gettid()
				wait(over)
			}()
			tid := <-tids
			if name == "in a call" {
				eventually(t, "it waits", func() bool { return !runs(tid) })
			} else {
				if name == "for Go" {
					eventually(t, "it waits", func() bool { return taskState(os.Getpid(), tid) == 'S' })
				}
				for range 100 {
					if !runs(tid) {
						t.Fatal("it is said to wait in the kernel")
					}
				}
			}
			if name == "in a call" {
				if _, err := unix.Write(pipe[1], []byte{1}); err != nil {
					t.Fatal(err)
				}
			}
			close(over)
			<-ended
		})
	}
	if !runs(0) || runs(1<<22+1) {
		t.Error("a thread that has not begun runs, and one that is not there doesn't")
	}
}
