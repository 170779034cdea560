// Package pair runs kprobe as two processes, each the other's guardian.
//
// The supervisor is what the user started. It executes itself once more as the
// tracer, lends it the terminal and its arguments, passes signals on and exits
// as the tracer does. The tracer does all the work. Between them is one socket:
//
//   - the supervisor dies, by SIGKILL too: the tracer sees the end of the socket,
//     takes its probes out in order and exits;
//   - the tracer dies without a word: the supervisor takes the probes out of the
//     processes that the tracer had named, and says so.
//
// Only when both are killed in the same moment is the process that is probed
// left to the fallback handler, which the probes have laid in it.
//
// On the socket go lines: up, from the tracer, "touch PID" before a process is
// changed and "end" when nothing is left to undo; down, from the supervisor,
// "signal N" for a signal that the supervisor was sent, "stop" before it stops itself,
// which the tracer answers with "stop", and "continue".
//
// ^Z stops the supervisor only: see Link.Apart and gate.
package pair

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Variable names the environment variable that tells a process that it is the
// tracer and which descriptor the socket is. The tracer removes it at once, so
// that no program that it starts sees it.
const Variable = "KPROBE_TRACER_FD"

const (
	wordTouch  = "touch "
	wordEnd    = "end"
	wordSignal = "signal "

	wordStop     = "stop"
	wordContinue = "continue"
)

// socket makes the two ends; both are closed on exec.
func socket() (supervisor, tracer *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "front"), os.NewFile(uintptr(fds[1]), "tracer"), nil
}

// number reads the number that follows a word on a line of the socket.
func number(line, word string) (int, bool) {
	if len(line) <= len(word) || line[:len(word)] != word {
		return 0, false
	}
	n, err := strconv.Atoi(line[len(word):])
	return n, err == nil && n > 0
}
