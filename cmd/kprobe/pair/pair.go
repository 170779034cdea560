// Package pair runs kprobe as two processes, each of which cleans up if the other is killed.
//
// The supervisor is what the user started. It executes itself again as the tracer, lends it the
// terminal and its arguments, forwards signals, and exits with the tracer's status. The tracer
// does all the work. One socket connects them:
//
//   - If the supervisor dies, even by SIGKILL, the tracer sees the end of the socket, removes
//     its probes in order and exits.
//   - If the tracer dies without a word, the supervisor removes the probes from the processes
//     that the tracer had named, and says so.
//
// Only if both are killed at the same moment is the probed process left to the fallback handler
// that the probes have put into it.
//
// The messages on the socket are lines. From the tracer: "touch PID" before a process is
// changed, and "end" when nothing is left to undo. From the supervisor: "signal N" for a signal
// that it was sent; "stop" before it stops itself, which the tracer answers with "stop"; and
// "continue".
//
// ^Z stops only the supervisor: see Link.Apart and gate.
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
