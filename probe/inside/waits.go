package inside

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"kprobe/internal/procfs"
	"kprobe/probe/results"
)

// waits finds who has what a thread waits for.
func (l *looker) waits(t *results.InsideThread) {
	switch c := t.Call; {
	case is(c, "futex") && futexWaits(c.Values[1]):
		t.Waits = l.owner(t)
	case is(c, "wait4") && int32(c.Values[0]) > 0:
		t.Waits = child(int(int32(c.Values[0])))
	case is(c, "waitid") && c.Values[0] == unix.P_PID:
		t.Waits = child(int(int32(c.Values[1])))
	case is(c, "flock"), is(c, "fcntl"):
		t.Waits = l.lockOf(int(int32(c.Values[0])))
	}
}

// Where mutexes keep who has them: glibc behind the word that is waited for
// (pthread_mutex_t: lock, count, owner), the kernel's own protocol and musl in it.
const (
	ownerBehind = 8
	tidMask     = 1<<30 - 1
)

// owner is the thread that has the mutex that another one waits for. A word is taken
// for the number of an owner only if it is that of a thread of the process.
func (l *looker) owner(t *results.InsideThread) *results.Waiting {
	at := t.Call.Values[0]
	word := at + ownerBehind
	switch op := t.Call.Values[1] &^ futexFlags; {
	case op == futexLockPI || op == futexLockPI2:
		word = at
	case !locksMutex(t.Frames):
		return nil
	case hasMusl(t.Frames):
		word = at
	}
	b := l.read(word, 4)
	if len(b) < 4 {
		return nil
	}
	tid, ok := l.inner[binary.LittleEndian.Uint32(b)&tidMask]
	if !ok {
		return nil
	}
	return &results.Waiting{What: fmt.Sprintf("mutex 0x%x", at), TID: tid}
}

// locksMutex reports whether the innermost functions are those that lock a mutex.
func locksMutex(frames []results.InsideFrame) bool {
	for i := range frames[:min(len(frames), 6)] {
		name := frames[i].Name
		if strings.Contains(name, "mutex_lock") || strings.Contains(name, "mutex_timedlock") || strings.Contains(name, "mutex_clocklock") {
			return true
		}
	}
	return false
}

func hasMusl(frames []results.InsideFrame) bool {
	return len(frames) > 0 && strings.Contains(frames[0].Module, "musl")
}

func child(pid int) *results.Waiting {
	comm, err := procfs.Process(pid).Comm()
	if err != nil {
		return nil
	}
	return &results.Waiting{What: "the end of a child", Text: comm + "-" + strconv.Itoa(pid)}
}

// lockOf is who has a lock of a file that is waited for (proc_locks(5)).
func (l *looker) lockOf(fd int) *results.Waiting {
	var st unix.Stat_t
	if unix.Stat(procfs.Image(l.pid).Path("fd/"+strconv.Itoa(fd)), &st) != nil {
		return nil
	}
	want := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	for line := range bytes.Lines(procfs.Table("/proc/locks")) {
		w := strings.Fields(string(line))
		if len(w) < 6 || w[1] == "->" || w[5] != want {
			continue
		}
		pid, err := strconv.Atoi(w[4])
		if err != nil || pid == os.Getpid() {
			continue
		}
		comm, _ := procfs.Process(pid).Comm()
		return &results.Waiting{What: "a lock of the file", Text: comm + "-" + strconv.Itoa(pid)}
	}
	return nil
}

// deadlock finds threads that wait for each other.
func deadlock(list []*results.InsideThread) []int {
	next := map[int]int{}
	for _, t := range list {
		if t.Waits != nil && t.Waits.TID != 0 {
			next[t.TID] = t.Waits.TID
		}
	}
	for _, t := range list {
		path, at := []int{}, t.TID
		for range list {
			to, ok := next[at]
			if !ok {
				break
			}
			path = append(path, at)
			if to == t.TID {
				return path
			}
			at = to
		}
	}
	return nil
}
