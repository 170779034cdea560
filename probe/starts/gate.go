//go:build linux

package starts

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/internal/procfs"
)

// HoldTime is how long a process waits in execve for whoever was told of it, at most, where
// Want says nothing. Its clock runs from when the kernel's question was read.
const HoldTime = time.Second

// maxHeld is how many processes are held at a time. More are let go at once: they are
// started faster than anybody could look at them.
const maxHeld = 256

// Held is a process that waits in execve.
type Held struct {
	PID int
	w   *Watch

	mu       sync.Mutex
	file     int32 // of the kernel's question; -1: answered
	watchdog *time.Timer
}

// Let lets it go. It may be called more than once, by any goroutine.
func (h *Held) Let() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.file < 0 {
		return
	}
	h.watchdog.Stop()
	h.w.gate.answer(h.file)
	h.file = -1
}

// Waits reports whether it wasn't let go yet.
func (h *Held) Waits() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.file >= 0
}

// InInterpreter reports whether the file is opened as another's interpreter, a script's or
// a program's: then the process can't be attached to before it is let go. known is false where
// the kernel doesn't tell.
func (h *Held) InInterpreter() (is, known bool) {
	stack, err := os.ReadFile(procfs.Process(h.PID).Path("stack"))
	has := func(name string) bool { return bytes.Contains(stack, []byte(name)) }
	return has("load_script") || has("load_elf_binary") || has("load_misc_binary"), err == nil && has("alloc_bprm")
}

// bark lets it go for want of an answer.
func (h *Held) bark() {
	if h.Waits() {
		h.w.released.Add(1)
		h.Let()
	}
}

// gate holds processes that execute marked files.
//
// When its descriptor is closed the kernel lets all go; but a process that this one has just
// made has a copy of the descriptor until its own execve, for which it may wait. So
// whoever waits is answered before.
type gate struct {
	f    *os.File
	fd   int
	held chan *Held
	read chan struct{} // closed when nothing is read any more

	mu      sync.Mutex
	closing bool           // guarded by mu: nobody is held any more
	waiting map[int32]bool // guarded by mu: the kernel's files that aren't answered

	marked map[string]os.FileInfo // what the files were when they were marked
}

// openGate marks files. All must be marked.
func openGate(files []string) (*gate, error) {
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC|unix.FAN_NONBLOCK|unix.FAN_UNLIMITED_QUEUE|unix.FAN_UNLIMITED_MARKS,
		unix.O_RDONLY|unix.O_LARGEFILE|unix.O_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("fanotify_init: %w", err)
	}
	g := &gate{fd: fd, f: os.NewFile(uintptr(fd), "fanotify"), held: make(chan *Held, maxHeld), read: make(chan struct{}), waiting: map[int32]bool{}, marked: map[string]os.FileInfo{}}
	for _, name := range files {
		g.marked[name], err = os.Stat(name)
		if err := errors.Join(err, g.add(name)); err != nil {
			_ = g.f.Close()
			return nil, err
		}
	}
	return g, nil
}

// add marks a file.
func (g *gate) add(name string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closing {
		return errNone
	}
	if err := unix.FanotifyMark(g.fd, unix.FAN_MARK_ADD, unix.FAN_OPEN_EXEC_PERM, unix.AT_FDCWD, name); err != nil {
		return fmt.Errorf("fanotify_mark %s: %w", name, err)
	}
	return nil
}

// renew marks files that others have taken the place of, as of a program that is upgraded;
// those that were there stay marked. It is for one goroutine.
func (g *gate) renew() {
	for name, was := range g.marked {
		if now, err := os.Stat(name); err == nil && !os.SameFile(was, now) && g.add(name) == nil {
			g.marked[name] = now
		}
	}
}

// close lets all go that are held.
func (g *gate) close() {
	g.mu.Lock()
	if g.closing {
		g.mu.Unlock()
		return
	}
	g.closing = true
	_ = unix.FanotifyMark(g.fd, unix.FAN_MARK_FLUSH, 0, unix.AT_FDCWD, "") // no file is marked any more
	for file := range g.waiting {
		g.allow(file)
	}
	g.mu.Unlock()
	_ = g.f.SetReadDeadline(time.Now()) // what was asked meanwhile is answered by the reader
	<-g.read
	_ = g.f.Close()
}

// answer lets a process go, and closes the kernel's file.
func (g *gate) answer(file int32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waiting[file] {
		g.allow(file)
	}
}

// allow is answer of what waits. g.mu is held.
func (g *gate) allow(file int32) {
	var b [8]byte
	binary.LittleEndian.PutUint32(b[:], uint32(file))
	binary.LittleEndian.PutUint32(b[4:], unix.FAN_ALLOW)
	// It fails where the process was killed meanwhile: nobody waits.
	_, _ = unix.Write(g.fd, b[:])
	_ = unix.Close(int(file))
	delete(g.waiting, file)
}

// metadataSize is that of struct fanotify_event_metadata: u32 length, u8 version, u8 0, u16
// length of this, u64 mask, s32 file, s32 process.
const metadataSize = 24

// ask takes the kernel's questions as they come, so that the clock of each runs.
func (g *gate) ask(w *Watch) {
	defer close(g.held)
	defer close(g.read)
	b := make([]byte, 256*metadataSize)
	for {
		n, err := g.f.Read(b)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
			continue
		}
		if err != nil {
			break
		}
		g.take(w, b[:n])
	}
	for { // what came before the marks were gone
		n, err := unix.Read(g.fd, b)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return
		}
		g.take(w, b[:n])
	}
}

// take takes questions.
func (g *gate) take(w *Watch, b []byte) {
	own := int32(os.Getpid())
	for len(b) >= metadataSize {
		size := int(binary.LittleEndian.Uint32(b))
		mask := binary.LittleEndian.Uint64(b[8:])
		file := int32(binary.LittleEndian.Uint32(b[16:]))
		pid := int32(binary.LittleEndian.Uint32(b[20:]))
		if size < metadataSize || size > len(b) {
			return
		}
		b = b[size:]
		if file < 0 || mask&unix.FAN_OPEN_EXEC_PERM == 0 {
			continue // an overflow: nobody waits for that
		}
		g.mu.Lock()
		g.waiting[file] = true
		if pid <= 0 || pid == own || g.closing {
			g.allow(file) // of another namespace, or ourselves
			g.mu.Unlock()
			continue
		}
		g.mu.Unlock()
		h := &Held{PID: int(pid), w: w, file: file}
		h.mu.Lock()
		h.watchdog = time.AfterFunc(w.hold(), h.bark)
		h.mu.Unlock()
		select {
		case g.held <- h:
		default:
			h.bark()
		}
	}
}

// tell tells who wants to know, until the gate is closed.
func (g *gate) tell(w *Watch) {
	for h := range g.held {
		list := []*Held{h}
	more:
		for {
			select {
			case h, ok := <-g.held:
				if !ok {
					break more
				}
				list = append(list, h)
			default:
				break more
			}
		}
		for _, h := range list {
			w.first(h.PID)
		}
		w.want.Held(list)
	}
}
