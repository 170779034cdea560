//go:build linux

package procfs

import (
	"bytes"
	"syscall"
)

// Stat is what stands in a stat file (proc_pid_stat(5)) behind the name: the fields
// from the third on. Of an empty one nothing is known.
type Stat []byte

// The fields that are asked for, as proc_pid_stat(5) numbers them.
const (
	statState     = 3
	FieldFlags    = 9
	FieldStart    = 22 // clock ticks since boot
	FieldSigIgn   = 33
	FieldSigCatch = 34
	FieldCPU      = 39
	FieldExitCode = 52 // as wait gives it; 0 to who may not trace the process
)

// Flags of a task (include/linux/sched.h), in FieldFlags.
const (
	FlagExiting      = 0x4      // PF_EXITING
	FlagIOWorker     = 0x10     // PF_IO_WORKER, since Linux 5.12
	FlagUserWorker   = 0x4000   // PF_USER_WORKER, since Linux 6.4
	FlagKernelThread = 0x200000 // PF_KTHREAD
)

// StatSize holds every stat: 52 numbers and a name.
const StatSize = 1024

// Stat reads the stat of a process or thread.
func (t Task) Stat() (Stat, error) {
	var buf [StatSize]byte
	text, err := Read(t.Path("stat"), buf[:])
	if err != nil {
		return nil, err
	}
	return ParseStat(bytes.Clone(text))
}

// ParseStat finds the fields in the text of a stat file. The error is EINVAL.
func ParseStat(text []byte) (Stat, error) {
	i := bytes.LastIndexByte(text, ')') // the name before it may hold anything
	if i < 0 {
		return nil, syscall.EINVAL
	}
	return Stat(text[i+1:]), nil
}

// State gives the letter of the state; 0 if it isn't known.
func (s Stat) State() byte {
	if f := s.field(statState); len(f) > 0 {
		return f[0]
	}
	return 0
}

// Ended reports whether the process or thread has ended and waits for its parent's
// notice, or nothing is known of it.
func (s Stat) Ended() bool {
	state := s.State()
	return state == 'Z' || state == 'X' || state == 0
}

// Uint gives a field by its number in proc_pid_stat(5). ok is false if it isn't there.
func (s Stat) Uint(field int) (v uint64, ok bool) {
	f := s.field(field)
	if len(f) == 0 || len(f) > 20 {
		return 0, false
	}
	for _, c := range f {
		d := uint64(c - '0')
		if d > 9 || v > (1<<64-1-d)/10 {
			return 0, false
		}
		v = v*10 + d
	}
	return v, true
}

// field gives a field's text, nil if it isn't there.
func (s Stat) field(n int) []byte {
	text := []byte(s)
	for at := statState; ; at++ {
		text = bytes.TrimLeft(text, " \n")
		i := bytes.IndexAny(text, " \n")
		if i < 0 {
			i = len(text)
		}
		if at == n || i == 0 {
			return text[:i]
		}
		text = text[i:]
	}
}

// StartTime gives when the process began, in clock ticks since boot: with it a
// process is told from a later one of the same number. 0 is one that has ended,
// whether or not its parent has taken notice.
func StartTime(pid int) uint64 {
	st, err := Process(pid).Stat()
	if err != nil || st.Ended() && Living(pid) == pid { // else only its first thread has ended
		return 0
	}
	start, _ := st.Uint(FieldStart)
	return start
}

// Runs reports whether the process pid that began at start (StartTime) hasn't ended: another one
// may have its number now. Of start 0 it is false.
func Runs(pid int, start uint64) bool { return start != 0 && StartTime(pid) == start }

// Living gives the number under which /proc tells of a process's memory and
// files: pid itself, or that of another of its threads where the first has
// ended and the others run on. A main that calls pthread_exit leaves such a
// process: /proc/PID has its numbers and signals still, but no memory (maps, mem,
// auxv, exe), no root and no descriptors, and calls that look for its memory by
// the number find none (process_vm_readv(2)). The thread may end as well at any
// moment; of a process that is gone, or has ended as a whole, it is pid.
func Living(pid int) int {
	p := Process(pid)
	if lives(p.Thread(pid)) {
		return pid
	}
	tids, err := p.Threads()
	if err != nil {
		return pid
	}
	for _, tid := range tids {
		if tid != pid && lives(p.Thread(tid)) {
			return tid
		}
	}
	return pid
}

func lives(t Task) bool {
	st, err := t.Stat()
	return err == nil && !st.Ended()
}

// Image is the folder of a process by which its memory and its files are found:
// that of a thread which lives.
func Image(pid int) Task { return Process(Living(pid)) }
