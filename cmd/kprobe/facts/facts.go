// Package facts says, before anything is touched, whether a process can be
// probed and what would stand in the way. It reads /proc and never traces,
// stops or signals.
package facts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"kprobe/output"
)

// Proc is a /proc to look at. The zero value is not useful: take Live, or the
// folder of a test.
type Proc struct {
	Root string // "/proc"
	Self int    // the process that asks
	// Front is the process that the user started, where it is another; 0 is none.
	Front int
}

// Live is this machine's /proc.
func Live() Proc { return Proc{Root: "/proc", Self: os.Getpid()} }

// Own reports whether the process is the one that asks.
func (p Proc) Own(pid int) bool { return pid == p.Self || pid == p.Front }

// Check gathers the facts of a process, those that stand in the way marked. A
// process that does not exist, or ends meanwhile, is a fact and no error.
func (p Proc) Check(pid int) []output.Fact {
	st, err := p.status(pid)
	if err != nil {
		return []output.Fact{existence(pid, err)}
	}
	who, err := p.status(p.Self)
	if err != nil {
		return []output.Fact{blocked("proc", fmt.Sprintf("%s can't be read: %v", p.Root, err), "mount it: mount -t proc proc /proc")}
	}
	facts := []output.Fact{p.identity(pid, st)}
	if facts[0].Blocks {
		return facts
	}
	facts = append(facts, p.permission(pid, st, who), p.yama(pid, who), p.tracer(pid), p.program(pid))
	facts = append(facts, seccomp(st, who), state(st), threads(st), p.namespaces(pid), shadowStack(st))
	return append(facts, p.runtime(pid)...)
}

// Blocked reports whether one of the facts stands in the way.
func Blocked(facts []output.Fact) bool {
	for i := range facts {
		if facts[i].Blocks {
			return true
		}
	}
	return false
}

func fine(name, text string) output.Fact { return output.Fact{Name: name, OK: true, Text: text} }

func note(name, text, remedy string) output.Fact {
	return output.Fact{Name: name, Text: text, Remedy: remedy}
}

func blocked(name, text, remedy string) output.Fact {
	return output.Fact{Name: name, Blocks: true, Text: text, Remedy: remedy}
}

func existence(pid int, err error) output.Fact {
	if errors.Is(err, fs.ErrNotExist) {
		return blocked("process", fmt.Sprintf("there is no process %d", pid), "find it by name: pgrep -l NAME")
	}
	return blocked("process", fmt.Sprintf("process %d can't be looked at: %v", pid, err), "run kprobe as root")
}

// status is a parsed /proc/PID/status (proc(5)): the text behind each name.
type status map[string]string

func (p Proc) path(pid int, name ...string) string {
	return filepath.Join(append([]string{p.Root, strconv.Itoa(pid)}, name...)...)
}

func (p Proc) status(pid int) (status, error) {
	return readStatus(p.path(pid, "status"))
}

func readStatus(path string) (status, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	st := status{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			st[name] = strings.TrimSpace(value)
		}
	}
	return st, nil
}

// number gives the first number of a line, 0 where there is none.
func (s status) number(name string) int {
	word, _, _ := strings.Cut(s[name], "\t")
	n, err := strconv.Atoi(strings.TrimSpace(word))
	if err != nil {
		return 0
	}
	return n
}

// field gives the i-th word of a line, "" where there is none.
func (s status) field(name string, i int) string {
	words := strings.Fields(s[name])
	if i < len(words) {
		return words[i]
	}
	return ""
}
