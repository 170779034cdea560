//go:build linux && amd64

package tracee

import (
	"context"
	"os"
	"runtime"
	"slices"
	"strings"
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

// TestAwaitPage: a page has a tenth of a second, one of a file on a disk has seconds, and a reader that only waits for a
// processor has more.
func TestAwaitPage(t *testing.T) {
	for _, c := range []struct {
		name        string
		runs, local bool
		patience    time.Duration
		comes       int // with the wait of this number; 0: never
		want        []time.Duration
	}{
		{"never", false, false, absentPatience, 0, []time.Duration{absentPatience}},
		{"at once", false, false, absentPatience, 1, []time.Duration{absentPatience}},
		{"too late", false, false, absentPatience, 2, []time.Duration{absentPatience}},
		{"of a file", false, true, absentPatience, 2, []time.Duration{absentPatience, filePatience - absentPatience}},
		{"of a file, after others that were late", false, true, leastPatience, 2, []time.Duration{leastPatience, filePatience - leastPatience}},
		{"of a file that nobody reads", false, true, absentPatience, 0, []time.Duration{absentPatience, filePatience - absentPatience}},
		{"kprobe's own", false, true, ownPatience, 0, []time.Duration{ownPatience}},
		{"without a processor", true, false, ownPatience, 0, []time.Duration{ownPatience, ownPatience}},
	} {
		got := make(chan arrival, 1)
		var waits []time.Duration
		asked := 0
		w := waiting{
			runs:  func() bool { return c.runs },
			local: func() bool { asked++; return c.local },
			after: func(d time.Duration) <-chan time.Time {
				if waits = append(waits, d); len(waits) == c.comes {
					got <- arrival{b: []byte("page")}
					return nil
				}
				over := make(chan time.Time, 1)
				over <- time.Time{}
				return over
			},
		}
		r, ok := w.await(got, c.patience)
		if came := c.comes > 0 && c.comes <= len(c.want); ok != came || came && string(r.b) != "page" {
			t.Errorf("%s: %q, %v", c.name, r.b, ok)
		}
		if !slices.Equal(waits, c.want) || asked > 1 {
			t.Errorf("%s: it waits %v, want %v, and asks %d times for the file", c.name, waits, c.want, asked)
		}
	}
}

// TestIsLocalFile: of a process's memory its program's text is a file's on a disk, if the machine has it on one, and memory
// without a file, or that is shared, never is.
func TestIsLocalFile(t *testing.T) {
	g := spawn(t, fixture.Build(t, "tracee_busy.c", "-O1"), "2")
	maps, err := symbols.ReadMaps(g.pid)
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{pid: g.pid}
	var on unix.Statfs_t
	if err := unix.Statfs(fixture.Build(t, "tracee_busy.c", "-O1"), &on); err != nil {
		t.Fatal(err)
	}
	for _, m := range maps {
		want := m.IsFile() && (on.Type == unix.EXT4_SUPER_MAGIC || on.Type == unix.XFS_SUPER_MAGIC)
		if got := p.isLocalFile(uint64(m.Start)); got != want && (!m.IsFile() || strings.Contains(m.Path, "tracee_busy")) {
			t.Errorf("%s %s: %v, want %v", m.Perms(), m.Path, got, want)
		}
	}
	if p.isLocalFile(8) {
		t.Error("nothing is mapped there")
	}
	const mounts = "26 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n27 26 0:41 / /home rw - nfs4 host:/home rw\n" +
		"28 26 254:1 / /win rw - fuseblk /dev/vdb rw\n29 26 0:42 / /d rw - overlay overlay rw,lowerdir=/x\n30 26 0:43 / /dev/shm rw - tmpfs tmpfs rw\n31 26 0:44\n"
	for device, want := range map[[2]uint32]bool{{254, 0}: true, {254, 1}: false, {0, 41}: false, {0, 42}: false, {0, 43}: false, {0, 44}: false, {25, 4}: false} {
		if got := isLocalDevice([]byte(mounts), device[0], device[1]); got != want {
			t.Errorf("device %v: %v, want %v", device, got, want)
		}
	}
}
