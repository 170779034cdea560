// Command kprobe traces running programs with the kernel's kprobes, brought to user processes.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"kprobe/cmd/kprobe/bench"
	"kprobe/cmd/kprobe/cli"
	"kprobe/cmd/kprobe/facts"
	"kprobe/cmd/kprobe/pair"
	"kprobe/probe"
)

func main() { os.Exit(run()) }

func run() int {
	if bench.Subject() {
		return 0
	}
	if n := mostFiles(); n < fewestFiles {
		fmt.Fprintf(os.Stderr, "kprobe: %d files may be open at a time, kprobe needs %d: ulimit -n %[2]d\n", n, fewestFiles)
		return 1
	}
	link := pair.Open()
	if link == nil && traces(os.Args[1:]) {
		supervisor := &pair.Supervisor{Args: os.Args, Stderr: os.Stderr, Recover: probe.Recover}
		status, err := supervisor.Run()
		if err == nil {
			return status
		}
		// Without /proc or descriptors for a second process one must do.
		fmt.Fprintf(os.Stderr, "kprobe: warning: no supervisor: %v\n", err)
	}
	proc := facts.Live()
	if link != nil {
		proc.Supervisor = os.Getppid()
	}
	return cli.Execute(context.Background(), os.Args[1:], &cli.Deps{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		Terminal: term.IsTerminal(int(os.Stdout.Fd())),
		Watched:  term.IsTerminal(int(os.Stderr.Fd())) && os.Getenv("TERM") != "dumb",
		Size:     size,
		Stdio:    [3]*os.File{os.Stdin, os.Stdout, os.Stderr},
		Engine:   engine{},
		Proc:     proc,
		Link:     link,
		Getenv:   os.Getenv,
		Now:      now,
	})
}

// fewestFiles is how many files kprobe may have to have open at a time, for a process
// with some libraries and the supervisor. With fewer, files of symbols can't be opened.
const fewestFiles = 32

// mostFiles gives how many files may be open at a time.
func mostFiles() uint64 {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return fewestFiles // it is tried
	}
	return l.Cur
}

// traces reports whether the arguments are those of a command that changes
// processes: only it needs a supervisor.
func traces(args []string) bool {
	for _, arg := range args {
		if strings.HasPrefix(arg, "-") {
			continue
		}
		return arg == "trace" || arg == "profile" || arg == "inject" || arg == "record" || arg == "graph"
	}
	return false
}

// size gives the terminal's size, that of a VT100 where it does not tell.
func size() (width, height int) {
	width, height, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		return 80, 24
	}
	return width, height
}

func now() (mono uint64, wall time.Time) {
	var ts unix.Timespec
	wall = time.Now()
	// clock_gettime fails only for a clock that does not exist.
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, wall
	}
	return uint64(ts.Nano()), wall
}
