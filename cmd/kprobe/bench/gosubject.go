package bench

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// goName is the name under which kprobe runs itself as the Go program that is
// probed. The CPU to be pinned to is its argument.
const goName = "kprobe-bench-go"

// Functions of the Go program, by their numbers in requests.
const (
	goBareFn = iota + 1
	goWorkFn
	goBareOuterFn
	goOuterFn
)

// Subject is for main to call first: it reports whether this process was
// started by Run to be probed, and has then done that work.
func Subject() bool {
	if len(os.Args) != 2 || os.Args[0] != goName {
		return false
	}
	// Whoever started it sees its pipe end; there is nobody else to tell.
	_ = serveGo(os.Args[1])
	return true
}

// serveGo answers requests as the other subject does, until there are no more.
func serveGo(cpu string) error {
	runtime.LockOSThread()
	debug.SetGCPercent(-1)
	n, err := strconv.Atoi(cpu)
	if err != nil {
		return fmt.Errorf("CPU %q: %w", cpu, err)
	}
	var set unix.CPUSet
	set.Set(n)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pin to CPU %d: %w", n, err)
	}
	in, out := os.NewFile(firstPipe, "requests"), os.NewFile(firstPipe+1, "answers")
	sink := uint64(0)
	for {
		var req [requestSize]byte
		if _, err := io.ReadFull(in, req[:]); err != nil {
			return fmt.Errorf("read a request: %w", err)
		}
		fn, n := binary.LittleEndian.Uint64(req[:]), binary.LittleEndian.Uint64(req[8:])
		start := time.Now()
		switch fn {
		case goWorkFn:
			for ; n > 0; n-- {
				sink += goWork(n, "hello, world")
			}
		case goBareFn:
			for ; n > 0; n-- {
				sink += goBare(n, "hello, world")
			}
		case goOuterFn:
			for ; n > 0; n-- {
				sink += goOuter(n, "hello, world")
			}
		case goBareOuterFn:
			for ; n > 0; n-- {
				sink += goBareOuter(n, "hello, world")
			}
		}
		var answer [answerSize]byte // from 0 s to so many ns
		binary.LittleEndian.PutUint64(answer[24:], uint64(time.Since(start)))
		if _, err := out.Write(answer[:]); err != nil {
			return fmt.Errorf("answer %d: %w", sink, err)
		}
	}
}

//go:noinline
func goWork(a uint64, s string) uint64 { return (a + 0x12345) ^ uint64(len(s)) }

//go:noinline
func goBare(a uint64, s string) uint64 { return (a + 0x12345) ^ uint64(len(s)) }

// goOuter calls another function: so it looks whether its stack has room.
//
//go:noinline
func goOuter(a uint64, s string) uint64 { return goBare(a, s) + 1 }

//go:noinline
func goBareOuter(a uint64, s string) uint64 { return goBare(a, s) + 1 }

// startGo runs this program as the Go program to measure.
func startGo(cpu int) (p *process, err error) {
	p = &process{cmd: exec.Command("/proc/self/exe"), made: map[uint64]uint64{}}
	p.cmd.Args = []string{goName, strconv.Itoa(cpu)}
	if err := p.pipe(); err != nil {
		p.end()
		return nil, err
	}
	err = p.cmd.Start()
	p.closeChilds()
	if err != nil {
		p.end()
		return nil, fmt.Errorf("start the Go program to measure: %w", err)
	}
	return p, nil
}

// goKinds are the rows of Go functions. The arguments are in the registers of
// Go's own calling convention.
func goKinds() []kind {
	const fn, outer = "kprobe/cmd/kprobe/bench.goWork", "kprobe/cmd/kprobe/bench.goOuter"
	entry, ret := "p:go "+fn+" a=%ax b=%bx", "r:goret "+fn+" v=%ax"
	return []kind{
		{name: "o", what: "Go function, jump; 2 arguments", floor: floorEntry, defs: []string{entry}},
		{name: "ro", what: "Go function, return, jump", floor: floorReturn, defs: []string{ret}},
		{name: "ro", what: "Go function, return with the time at entry too, jump", fn: outer, floor: floorLatency, defs: []string{"r:goret " + outer + " v=%ax since=$entrytime"}},
		{name: "kro", what: "Go function, entry and return, jumps", floor: floorBoth, defs: []string{entry, ret}},
	}
}
