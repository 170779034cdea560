package area

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/internal/procfs"
)

// Turns
//
// Several commands may change what kprobe has in a process that nobody traces: detached probes are added and removed, and
// a session first removes what a killed one has left. Each of these looks at what is there, attaches, makes its change
// and lets go, so they take turns. A turn is a lock (flock) on the process's file of memory in /proc: only who may trace the
// process can open it, and the kernel gives the turn back if its holder is killed. It orders what would fail at
// ptrace otherwise, and protects nothing else: who doesn't get the lock for another reason goes on without it.

// Turn is the right to change what kprobe has in a process. A nil Turn is one, too.
type Turn struct{ mem *os.File }

// turnLook is how often TakeTurn looks.
const turnLook = 2 * time.Millisecond

// TakeTurn waits until no other command changes a process, for so long at most. The error is then a *BusyError. End the turn.
func TakeTurn(ctx context.Context, pid int, patience time.Duration) (*Turn, error) {
	mem, err := os.Open(procfs.Image(pid).Path("mem"))
	if err != nil {
		return nil, nil // who may not trace it, or finds no process, learns that from what comes next
	}
	for until := time.Now().Add(patience); ; time.Sleep(turnLook) {
		switch err = unix.Flock(int(mem.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
		case err == nil:
			return &Turn{mem}, nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			mem.Close()
			return nil, nil
		case ctx.Err() != nil:
			mem.Close()
			return nil, ctx.Err()
		case !time.Now().Before(until):
			by := lockedBy(mem)
			mem.Close()
			return nil, &BusyError{PID: pid, By: by, After: patience}
		}
	}
}

// End gives the turn to the next. It may be called again.
func (t *Turn) End() {
	if t != nil {
		t.mem.Close()
	}
}

// BusyError says that another command has been changing the probes of a process for so long that nobody waits any more.
type BusyError struct {
	PID   int
	By    int // its process; 0 if that isn't known
	After time.Duration
}

func (e *BusyError) Error() string {
	by := "another kprobe"
	if e.By != 0 {
		by += fmt.Sprintf(" (process %d)", e.By)
	}
	return fmt.Sprintf("%s has been changing the probes of process %d for %v or longer: try again when it has ended", by, e.PID, e.After)
}

// lockedBy is the process that has a file locked, 0 if the kernel doesn't say.
func lockedBy(f *os.File) int {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return 0
	}
	its := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	for line := range bytes.Lines(procfs.Table("/proc/locks")) {
		// 1: FLOCK  ADVISORY  WRITE 4711 00:15:117634 0 EOF; with -> behind the number it waits
		if w := strings.Fields(string(line)); len(w) > 5 && w[1] == "FLOCK" && w[5] == its {
			pid, _ := strconv.Atoi(w[4])
			return max(pid, 0) // of another namespace
		}
	}
	return 0
}
