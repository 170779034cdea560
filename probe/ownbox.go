package probe

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"kprobe/internal/procfs"
	"kprobe/probe/memory"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

// The mailbox of kprobe's own
//
// The mailbox in a target's memory file takes requests of whoever may write to the
// target's memory, the target too. A session of several processes can't do all that
// one of them asks for. So each target has a second mailbox, in the memory of the
// kprobe that traces it, found by its name among that one's mappings: who may write
// there may have kprobe do anything, and needs no leave. Where another kprobe may not,
// it asks by the first.

// ownBoxName is the name of the memory file of a target's own mailbox, up to the
// target's process id.
const ownBoxName = "kprobe-requests-"

// ownLayout is that of a file that is a mailbox and nothing else.
var ownLayout = &ring.Layout{Mailbox: ring.Section{Size: ring.MailboxSize}}

// ownBox is a mailbox in kprobe's memory.
type ownBox struct {
	*ring.Mailbox
	own *memory.Mapped
}

// newOwnBox makes the mailbox for requests about a target.
func newOwnBox(pid int) (*ownBox, error) {
	fd, err := unix.MemfdCreate(fmt.Sprint(ownBoxName, pid), unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a mailbox: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, ring.MailboxSize); err != nil {
		return nil, fmt.Errorf("size a mailbox: %w", err)
	}
	mem, err := unix.Mmap(fd, 0, ring.MailboxSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map a mailbox: %w", err)
	}
	box, err := ring.NewMailbox(mem, ownLayout)
	if err != nil {
		_ = unix.Munmap(mem)
		return nil, err
	}
	return &ownBox{box, memory.NewMapped(mem)}, nil
}

// openOwn opens the mailbox that the session's kprobe has for requests about the
// process, nil where there is none that this kprobe may write to.
func (l *Live) openOwn() (*liveFile, error) {
	maps, err := symbols.ReadMaps(l.Tracer)
	if errors.Is(err, symbols.ErrPermission) || errors.Is(err, symbols.ErrGone) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	name := fmt.Sprint("/memfd:", ownBoxName, l.PID)
	for _, m := range maps {
		if strings.TrimSuffix(m.Path, " (deleted)") != name || m.Off != 0 {
			continue
		}
		mem, err := os.OpenFile(procfs.Image(l.Tracer).Path("mem"), os.O_RDWR, 0)
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		} else if err != nil {
			return nil, fmt.Errorf("open the memory of process %d: %w", l.Tracer, err)
		}
		return &liveFile{mem, int64(m.Start)}, nil
	}
	return nil, nil
}

// mailbox gives the mailbox to ask by, and closes it.
func (l *Live) mailbox() (box liveFile, layout *ring.Layout, closeBox func(), err error) {
	own, err := l.openOwn()
	if err != nil {
		return liveFile{}, nil, nil, err
	}
	if own == nil {
		return l.file(), l.snap.Layout, func() {}, nil
	}
	return *own, ownLayout, func() { own.mem.Close() }, nil
}
