package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"kprobe/cmd/kprobe/kept"
	"kprobe/fetch"
	"kprobe/internal/quote"
	"kprobe/probe"
	"kprobe/symbols"
)

// The rules of messages:
//
//   - Data goes to standard output, everything else to standard error.
//   - A message is one line: "kprobe: ", then a clause in lower case without a final period.
//     Errors of definitions keep the kernel's capital.
//   - "kprobe: warning: " is for what the user should know although the work continues.
//     "kprobe: hint: " is on its own line after an error and names what to do next.
//   - A wrong definition follows on a line of its own, indented by two blanks, with a caret
//     below the error.
//   - -q drops the summary of a trace, never an error, a warning or a loss.
//   - Nothing is coloured.

// messages prints on standard error. Its methods may be called from several
// goroutines; each message is one write, so that lines stay whole beside the
// output of a traced command.
type messages struct {
	mu    sync.Mutex
	w     io.Writer // guarded by mu
	shown string    // guarded by mu: the line of progress that stands on the terminal
}

func (m *messages) write(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.shown != "" {
		text, m.shown = eraseLine+text, ""
	}
	// There is nobody left to tell when standard error fails.
	_, _ = io.WriteString(m.w, text)
}

// say prints a line.
func (m *messages) say(format string, args ...any) {
	m.write("kprobe: " + oneLine(fmt.Sprintf(format, args...)) + "\n")
}

// warn prints a warning.
func (m *messages) warn(format string, args ...any) {
	m.write("kprobe: warning: " + oneLine(fmt.Sprintf(format, args...)) + "\n")
}

// fail prints an error with the definition it is about and a hint.
func (m *messages) fail(err error) {
	if all, ok := err.(several); ok { //nolint:errorlint // only the outermost is taken apart
		for _, e := range all {
			m.fail(e)
		}
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "kprobe: %s\n", oneLine(headline(err)))
	b.WriteString(culprit(err))
	if h := hint(err); h != "" {
		fmt.Fprintf(&b, "kprobe: hint: %s\n", oneLine(h))
	}
	m.write(b.String())
}

// headline is the message without the definition, which culprit shows.
func headline(err error) string {
	var def *probe.DefError
	if !errors.As(err, &def) {
		return err.Error()
	}
	if s := syntaxOf(def); s != nil {
		return s.Error()
	}
	return def.Err.Error()
}

// culprit shows the definition at fault with a caret, "" where no definition is.
func culprit(err error) string {
	var syntax *fetch.SyntaxError
	var def *probe.DefError
	if errors.As(err, &def) {
		if syntax = syntaxOf(def); syntax == nil {
			return fetch.Shown(def.Def.Text)
		}
		return syntax.Caret()
	}
	if errors.As(err, &syntax) {
		return syntax.Caret()
	}
	return ""
}

// syntaxOf gives the kernel's error for what is wrong with a definition's
// place; nil where the kernel has none.
func syntaxOf(def *probe.DefError) *fetch.SyntaxError {
	var syntax *fetch.SyntaxError
	var boundary *probe.BoundaryError
	switch cause := def.Err; {
	case errors.As(cause, &syntax):
		return syntax
	case errors.As(cause, &boundary):
		return def.Def.Error(fetch.BadInsnBndry, cause.Error(), cause)
	case errors.Is(cause, symbols.ErrAmbiguous):
		return def.Def.Error(fetch.NonUniqSymbol, cause.Error(), cause)
	case errors.Is(cause, symbols.ErrNoSymbol), errors.Is(cause, symbols.ErrNotMapped),
		errors.Is(cause, symbols.ErrOutside), errors.Is(cause, symbols.ErrNotExecutable),
		errors.Is(cause, symbols.ErrNoDebugInfo), errors.Is(cause, symbols.ErrNoLine):
		return def.Def.Error(fetch.BadProbeAddr, cause.Error(), cause)
	}
	var refused *probe.RefusedError
	if errors.As(def.Err, &refused) {
		return def.Def.Error(fetch.FailRegProbe, def.Err.Error(), def.Err)
	}
	return nil
}

// startedError is that a place isn't in a program that was started to be traced.
type startedError struct {
	error
	comm string
}

func (e *startedError) Unwrap() error { return e.error }

// hint says what to do next where the error does not say it itself.
func hint(err error) string {
	var traced *probe.TracedError
	if errors.As(err, &traced) {
		if traced.Comm == "kprobe" {
			return fmt.Sprintf("kprobe add -p %d DEF gives that trace another probe, kprobe profile -p %d shows its counters", traced.PID, traced.PID)
		}
		return fmt.Sprintf("a thread has one tracer at a time: end process %d, or detach it", traced.By)
	}
	var none *probe.NoProcessError
	if errors.As(err, &none) {
		if none.Of != 0 {
			return fmt.Sprintf("-p %d takes all threads of the process", none.Of)
		}
		return "pgrep -a NAME lists a program's processes"
	}
	var taken *kept.TakenError
	if errors.As(err, &taken) {
		return takenHint(taken)
	}
	var limit *probe.LimitError
	if errors.As(err, &limit) {
		return fmt.Sprintf("prlimit --pid %d --%s=unlimited lifts it; beyond the hard limit that takes CAP_SYS_RESOURCE", limit.PID, limit.Option)
	}
	var started *startedError
	if errors.As(err, &started) {
		return fmt.Sprintf("if %s executes the program that has it, --pending NAME:SYMBOL waits for that", started.comm)
	}
	if h := lookupHint(err); h != "" {
		return h
	}
	if h := metricsHint(err); h != "" {
		return h
	}
	switch {
	case errors.Is(err, symbols.ErrNoDebugInfo), errors.Is(err, fetch.ErrNoDebugInfo):
		return "compile with -g, install the program's debug package, or name debuginfod servers in DEBUGINFOD_URLS"
	case errors.Is(err, probe.ErrSeccomp):
		return "as root kprobe suspends the program's rules while it makes system calls in it"
	case errors.Is(err, unix.ENOEXEC):
		return "it is not a program for this machine; a script needs #! and its interpreter in its first line"
	case errors.Is(err, symbols.ErrBadELF):
		return "-x takes a program or a shared library"
	}
	return textHint(err)
}

// takenHint names the kept definition that is in the way of another.
func takenHint(e *kept.TakenError) string {
	name := kept.Name(e.Kept)
	var syntax *fetch.SyntaxError
	if errors.As(e, &syntax) && syntax.Code == fetch.SameProbe {
		return "it is kept already: kprobe list " + name + " shows it"
	}
	return name + " is kept as: " + e.Kept.String() + "; kprobe del " + name + ", or choose another name"
}

// ofProcess is an error with the process's number before it, unless the error names the process.
func ofProcess(pid int, err error) error {
	if namesProcess(err.Error(), pid) {
		return err
	}
	return fmt.Errorf("process %d: %w", pid, err)
}

// namesProcess reports whether a message names a process.
func namesProcess(text string, pid int) bool {
	name := fmt.Sprintf("process %d", pid)
	for {
		at := strings.Index(text, name)
		if at < 0 {
			return false
		}
		if text = text[at+len(name):]; text == "" || text[0] < '0' || text[0] > '9' {
			return true
		}
	}
}

// oneLine keeps a message on its line whatever a process's names contain. Joined
// errors have a line each.
func oneLine(s string) string { return quote.Plain(strings.ReplaceAll(s, "\n", "; ")) }
