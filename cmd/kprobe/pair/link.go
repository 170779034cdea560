package pair

import (
	"bufio"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Link is the tracer's end of the socket. A nil *Link is a tracer without a
// supervisor: it can be told everything and never says anything.
type Link struct {
	f       *os.File
	signals chan syscall.Signal
	gone    chan struct{}

	mu      sync.Mutex
	touched map[int]bool // guarded by mu
	outputs []*gated     // guarded by mu
	gate    *gate
	group   int // the supervisor's process group
}

// Open returns the tracer's end of the socket if this process was started by a
// supervisor, else nil. It removes Variable from the environment and keeps the
// socket from the programs that the tracer starts.
func Open() *Link {
	text, ok := os.LookupEnv(Variable)
	if !ok {
		return nil
	}
	// The variable is only believed when the descriptor is a socket: whoever
	// exports it by mistake gets a tracer without a supervisor.
	if err := os.Unsetenv(Variable); err != nil {
		return nil
	}
	fd, err := strconv.Atoi(text)
	if err != nil || fd < 3 {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil
	}
	unix.CloseOnExec(fd)
	// It was executed as /proc/self/exe: ps and others would show "exe".
	_ = os.WriteFile("/proc/self/comm", []byte("kprobe"), 0)
	return newLink(os.NewFile(uintptr(fd), "front"))
}

func newLink(f *os.File) *Link {
	l := &Link{
		f:       f,
		signals: make(chan syscall.Signal, 8),
		gone:    make(chan struct{}),
		touched: map[int]bool{},
		gate:    newGate(os.Getppid()),
		group:   syscall.Getpgrp(),
	}
	go l.read()
	return l
}

func (l *Link) read() {
	defer close(l.gone)
	defer l.reopen()
	for in := bufio.NewScanner(l.f); in.Scan(); {
		switch in.Text() {
		case wordStop:
			l.gate.set(true)
			l.mu.Lock()
			l.say(wordStop)
			l.mu.Unlock()
		case wordContinue:
			l.reopen()
		}
		if n, ok := number(in.Text(), wordSignal); ok {
			select {
			case l.signals <- syscall.Signal(n):
			default: // eight wait unread: one more says nothing new
			}
		}
	}
}

func (l *Link) reopen() {
	l.gate.set(false)
	go l.flushAll() // a terminal may take its time
}

// Apart takes the tracer out of the supervisor's process group, so that what stops
// that (^Z, SIGSTOP of the job, SIGTTIN and SIGTTOU) doesn't stop the tracer, for
// which the traced processes would wait. Signals of the terminal reach it by the
// supervisor alone from then on. It reads from the terminal no more, and writes to it
// whatever "stty tostop" says. It gives the group in which commands belong that the
// tracer starts, and the signals that they must not inherit as ignored; 0 for a
// tracer without a supervisor, or where it is to stay.
func (l *Link) Apart() (group int, ignored []syscall.Signal) {
	if l == nil {
		return 0, nil
	}
	if !signal.Ignored(syscall.SIGTTOU) {
		signal.Ignore(syscall.SIGTTOU)
		ignored = append(ignored, syscall.SIGTTOU)
	}
	if syscall.Setpgid(0, 0) != nil {
		return 0, ignored // the leader of a session: no job
	}
	return l.group, ignored
}

// Signals gives the signals that the supervisor was sent.
func (l *Link) Signals() <-chan syscall.Signal {
	if l == nil {
		return nil
	}
	return l.signals
}

// Gone is closed when the supervisor has ended.
func (l *Link) Gone() <-chan struct{} {
	if l == nil {
		return nil
	}
	return l.gone
}

// Touched tells the supervisor that the process is about to be changed. It may be
// called from several goroutines. A supervisor that has gone is no error: Gone says
// it.
func (l *Link) Touched(pid int) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.touched[pid] {
		return
	}
	l.touched[pid] = true
	l.say(wordTouch + strconv.Itoa(pid))
}

// End tells the supervisor that nothing is left to undo, whatever the exit status
// will be.
func (l *Link) End() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.say(wordEnd)
}

// say writes a line. A failure can only mean that the supervisor has gone, which
// the reader notices.
func (l *Link) say(line string) {
	_, _ = l.f.WriteString(line + "\n")
}
