//go:build linux

package procfs

import (
	"bytes"
	"strconv"
	"strings"
)

// Status is the text of a status file (proc_pid_status(5)). Of an empty one nothing
// is known.
type Status []byte

// Status reads the status of a process or thread.
func (t Task) Status() (Status, error) {
	text, err := Read(t.Path("status"), make([]byte, 4096)) // one with many groups is longer
	return Status(text), err
}

// Field gives what stands behind a name, without the blanks around it; "" if the
// kernel doesn't tell.
func (s Status) Field(name string) string {
	for line := range bytes.Lines(s) {
		if len(line) > len(name) && line[len(name)] == ':' && string(line[:len(name)]) == name {
			return strings.TrimSpace(string(line[len(name)+1:]))
		}
	}
	return ""
}

// Int gives the first word of a field as a decimal number; 0 if it isn't one.
func (s Status) Int(name string) int {
	word, _, _ := strings.Cut(s.Field(name), "\t")
	word, _, _ = strings.Cut(word, " ")
	n, err := strconv.Atoi(word)
	if err != nil {
		return 0
	}
	return n
}

// Set gives a field that is a set in hexadecimal: signals (bit 0 is signal 1) or
// capabilities. ok is false where the kernel doesn't tell.
func (s Status) Set(name string) (set uint64, ok bool) {
	set, err := strconv.ParseUint(s.Field(name), 16, 64)
	return set, err == nil
}

// State gives the letter of the state; 0 if it isn't known.
func (s Status) State() byte {
	if f := s.Field("State"); f != "" {
		return f[0]
	}
	return 0
}

// InnerNumber gives the number of the process or thread in its own pid namespace.
// nested says that this is another namespace than that of this /proc. Kernels
// before 4.1 don't tell.
func (s Status) InnerNumber() (number uint32, nested bool) {
	words := strings.Fields(s.Field("NSpid"))
	if len(words) < 2 {
		return 0, false
	}
	v, err := strconv.ParseUint(words[len(words)-1], 10, 32)
	return uint32(v), err == nil
}

// Judged reports whether rules of seccomp may judge the thread's system calls: it is under
// some, or has asked to get no new privileges, as who isn't root must before it sets any.
func (s Status) Judged() bool { return s.Int("Seccomp") != 0 || s.Int("NoNewPrivs") == 1 }

// ShadowStack reports whether the program runs with user shadow stacks
// (Documentation/arch/x86/shstk.rst). Kernels before 6.6 have none.
func (s Status) ShadowStack() bool { return strings.Contains(s.Field("x86_Thread_features"), "shstk") }
