//go:build linux && amd64

package tracee

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// stallingFS is a file system whose every lookup waits until release, as one on
// a network does: once interrupted, uninterruptibly. It speaks as much of the
// protocol (include/uapi/linux/fuse.h) as that takes.
type stallingFS struct {
	dir      string
	asked    chan struct{} // closed at the first lookup
	released chan struct{}
	first    sync.Once
	once     sync.Once
}

func (fs *stallingFS) release() { fs.once.Do(func() { close(fs.released) }) }

func mountStalling(t *testing.T) *stallingFS {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("open /dev/fuse: %v", err)
	}
	fs := &stallingFS{dir: t.TempDir(), asked: make(chan struct{}), released: make(chan struct{})}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)
	if err := unix.Mount("stalling", fs.dir, "fuse", 0, options); err != nil {
		unix.Close(fd)
		t.Fatalf("mount: %v", err)
	}
	served := make(chan error, 1)
	go func() { served <- fs.serve(fd) }()
	t.Cleanup(func() {
		fs.release()
		if err := unix.Unmount(fs.dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
		unix.Close(fd)
	})
	return fs
}

// serve answers requests until the file system is unmounted.
func (fs *stallingFS) serve(fd int) error {
	const lookup, interrupt, forget, initialize = 1, 36, 2, 26
	const headerIn, headerOut, initOut = 40, 16, 64
	le := binary.LittleEndian
	request := make([]byte, 1<<17)
	var waiting []uint64
	answer := func(unique uint64, errno unix.Errno, body []byte) error {
		b := le.AppendUint32(nil, uint32(headerOut+len(body)))
		b = le.AppendUint32(b, uint32(-int32(errno)))
		b = append(le.AppendUint64(b, unique), body...)
		if _, err := unix.Write(fd, b); err != nil && err != unix.ENOENT {
			return fmt.Errorf("answer a request: %w", err)
		}
		return nil
	}
	for {
		// Not to be stuck in a read when the lookups are to be answered.
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(poll, 5); err != nil && err != unix.EINTR {
			return fmt.Errorf("wait for requests: %w", err)
		}
		select {
		case <-fs.released:
			for _, unique := range waiting {
				if err := answer(unique, unix.ENOENT, nil); err != nil {
					return err
				}
			}
			waiting = nil
		default:
		}
		if poll[0].Revents == 0 {
			continue
		}
		n, err := unix.Read(fd, request)
		switch {
		case err == unix.ENODEV:
			return nil
		case err == unix.EINTR || err == unix.ENOENT: // the latter: given up meanwhile
			continue
		case err != nil || n < headerIn:
			return fmt.Errorf("a request of %d bytes: %w", n, err)
		}
		unique := le.Uint64(request[8:])
		switch le.Uint32(request[4:]) {
		case initialize:
			body := make([]byte, initOut)
			le.PutUint32(body, 7)
			le.PutUint32(body[4:], 31)
			err = answer(unique, 0, body)
		case lookup:
			waiting = append(waiting, unique)
			fs.first.Do(func() { close(fs.asked) })
		case interrupt, forget:
		default:
			err = answer(unique, unix.ENOSYS, nil)
		}
		if err != nil {
			return err
		}
	}
}

// A thread that waits uninterruptibly for long keeps a stop of all threads from
// being complete, but is waited for where the process is left.
func TestDetachWaitsForStalls(t *testing.T) {
	fs := mountStalling(t)
	g := spawn(t, events(t), "stat", filepath.Join(fs.dir, "file"))
	<-fs.asked
	tr := newTracer(t)
	p := attach(t, tr, g.pid)
	stop := running(t, tr, &recorder{t: t})
	err := p.WithStopped(context.Background(), func(ts []*Thread) error { return nil })
	var late *NotStoppedError
	if !errors.As(err, &late) || len(late.TIDs) != 1 {
		t.Fatalf("a stop of all threads: %v; it did not meet the stall", err)
	}
	if state := taskState(g.pid, late.TIDs[0]); state != 'D' {
		t.Errorf("the thread that did not stop is in %c", state)
	}
	time.AfterFunc(2*stallPatience, fs.release)
	err = p.Detach(context.Background(), func(ts []*Thread) error {
		if late := p.Late(); len(late) > 0 || len(ts) != 2 {
			t.Errorf("%d threads are late, %d stopped", len(late), len(ts))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if _, status := g.rest(); status != 0 {
		t.Errorf("status %d: the lookup had another result than that there is no file", status)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}
