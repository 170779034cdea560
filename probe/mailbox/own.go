package mailbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

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

// ownName is the name of the memory file of a target's own mailbox, up to the
// target's process id.
const ownName = "kprobe-requests-"

// ownLayout is that of a file that is a mailbox and nothing else.
var ownLayout = &ring.Layout{Mailbox: ring.Section{Size: ring.MailboxSize}}

// Own is a mailbox in kprobe's memory, as long as it is referred to.
type Own struct {
	*ring.Mailbox
	own *memory.Mapped // keeps it mapped
}

// NewOwn makes the mailbox for requests about a target.
func NewOwn(pid int) (*Own, error) {
	fd, err := unix.MemfdCreate(fmt.Sprint(ownName, pid), unix.MFD_CLOEXEC)
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
	return &Own{box, memory.NewMapped(mem)}, nil
}

// openOwn opens the mailbox that a kprobe has for requests about a process, nil where
// there is none that this kprobe may write to.
func openOwn(tracer, pid int) (*memory.Window, error) {
	maps, err := symbols.ReadMaps(tracer)
	if errors.Is(err, symbols.ErrPermission) || errors.Is(err, symbols.ErrGone) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	name := fmt.Sprint("/memfd:", ownName, pid)
	for _, m := range maps {
		if m.Path != name || m.Off != 0 {
			continue
		}
		mem, err := os.OpenFile(procfs.Image(tracer).Path("mem"), os.O_RDWR, 0)
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		} else if err != nil {
			return nil, fmt.Errorf("open the memory of process %d: %w", tracer, err)
		}
		return &memory.Window{Mem: mem, At: m.Start}, nil
	}
	return nil, nil
}
