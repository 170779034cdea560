package cli

import (
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"
)

const (
	// eraseLine goes to the line's first column and clears it (ECMA-48, EL).
	eraseLine = "\r\x1b[K"
	// busyAfter is how long work may take before its progress is shown, and
	// busyEvery how often the line changes from then on.
	busyAfter = 500 * time.Millisecond
	busyEvery = 200 * time.Millisecond
)

// busy shows on a terminal what a command is doing that takes long: one line,
// which is written over, and is gone when something else is printed or the work is
// done. A nil *busy shows nothing. It may be used by several goroutines.
type busy struct {
	m    *messages
	over func()

	mu    sync.Mutex
	step  string // guarded by mu
	n, of int    // guarded by mu; of is 0 where nobody knows
}

// busy begins to show a step if on, until stop is called.
func (m *messages) busy(on bool, step string) *busy {
	if !on {
		return nil
	}
	b := &busy{m: m, step: step}
	end, ended := make(chan struct{}), make(chan struct{})
	b.over = sync.OnceFunc(func() {
		close(end)
		<-ended
		m.show("")
	})
	go func() {
		defer close(ended)
		for wait := busyAfter; ; wait = busyEvery {
			select {
			case <-end:
				return
			case <-time.After(wait):
				m.show(b.line())
			}
		}
	}()
	return b
}

// stop clears the line. It may be called again.
func (b *busy) stop() {
	if b != nil {
		b.over()
	}
}

// progress gives a function that takes the step and how far it is, for
// probe.Options; nil where nothing is shown.
func (b *busy) progress() func(step string, n, of int) {
	if b == nil {
		return nil
	}
	return func(step string, n, of int) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.step, b.n, b.of = step, n, of
	}
}

func (b *busy) line() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of == 0 {
		return fmt.Sprintf("kprobe: %s …", b.step)
	}
	return fmt.Sprintf("kprobe: %s: %s of %s (%d %%)", b.step, grouped(b.n), grouped(b.of), 100*b.n/b.of)
}

// grouped writes a number with a comma before each three digits.
func grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// show has the terminal's last line be that of progress; "" is none.
func (m *messages) show(line string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if line != m.shown {
		m.shown = line
		_, _ = io.WriteString(m.w, eraseLine+line)
	}
}
