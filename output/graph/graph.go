// Package graph prints calls as trees, in the layout of ftrace's function_graph.
package graph

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"kprobe/internal/quote"
	"kprobe/output/calls"
	"kprobe/probe/results"
	"kprobe/symbols/glob"
)

// Header names the columns, as the kernel's tracer does.
const Header = "# CPU  TASK-PID               DURATION                  FUNCTION CALLS\n" +
	"# |    |    |                  |   |                     |   |   |   |\n"

// Printer is the calls.Sink that prints trees. It is not safe for concurrent use.
type Printer struct {
	W   io.Writer
	Now func() uint64 // of the tracker

	// Below, if set, is a pattern for functions: what isn't called by one is left out.
	Below string
	// Not are patterns for functions that are left out, with all that they call.
	Not []string
	// Depth, if not 0, is how many levels of calls are shown.
	Depth int
	// Slower and Failed choose roots: those that took as long, in ns, or whose result
	// says that they failed; both means either. Each is shown with its whole tree, once
	// it is over.
	Slower uint64
	Failed bool
	// Limit, if not 0, is how many trees are shown. With the last results.ErrStop is returned.
	Limit uint64
	// LeftFails says that a call that was left by an exception or longjmp failed, too.
	LeftFails bool

	Roots, Shown uint64 // trees that there were, and that were shown
	Cut          uint64 // lines of trees that had more than maxLines

	// LeftOut are functions of which hits aren't given any more: a call of one that has
	// no return hasn't failed for that.
	LeftOut map[string]bool

	threads map[calls.Track]*thread
	last    *thread // whose line was the last
}

// maxLines bounds what is kept of a tree until it is known whether it is shown.
const maxLines = 1 << 15

// thread is where a thread is.
type thread struct {
	root   *calls.Call // that the tree begins with; nil: outside
	hidden *calls.Call // that is left out with what it calls
	begun  *calls.Call // whose first line isn't written: it may be its only one
	lines  []byte
	count  int
	broken bool // another thread's line came between
}

// Out is what Note keeps of a return.
type Out struct {
	Text   string
	Failed bool
}

// Result is the name of the value that a function returns.
const Result = "ret"

func (p *Printer) thread(c *calls.Call) *thread {
	key := c.Track()
	t := p.threads[key]
	if t == nil {
		if p.threads == nil {
			p.threads = map[calls.Track]*thread{}
		}
		t = &thread{}
		p.threads[key] = t
	}
	return t
}

// chooses reports whether trees are shown only when they are over.
func (p *Printer) chooses() bool { return p.Slower > 0 || p.Failed }

func (p *Printer) matches(pattern string, c *calls.Call) bool {
	return glob.Match(pattern, []byte(c.Func.Name), "!")
}

// Enter implements calls.Sink.
func (p *Printer) Enter(c *calls.Call) error {
	t := p.thread(c)
	if t.hidden != nil {
		return nil
	}
	for _, pattern := range p.Not {
		if p.matches(pattern, c) {
			t.hidden = c
			return nil
		}
	}
	if t.root == nil {
		if p.Below != "" && !p.matches(p.Below, c) {
			return nil
		}
		if p.Limit > 0 && !p.chooses() && p.Roots == p.Limit {
			return nil
		}
		t.root = c
		p.Roots++
	}
	if p.Depth > 0 && c.Depth-t.root.Depth >= p.Depth {
		return nil
	}
	if err := p.begin(t); err != nil {
		return err
	}
	t.begun = c
	return nil
}

// begin writes the first line of a call that has more than one.
func (p *Printer) begin(t *thread) error {
	c := t.begun
	if c == nil {
		return nil
	}
	t.begun = nil
	return p.line(t, c, "", function(c)+" {")
}

// Leave implements calls.Sink.
func (p *Printer) Leave(c *calls.Call) error {
	t := p.thread(c)
	if t.hidden != nil {
		if t.hidden == c {
			t.hidden = nil
		}
		return nil
	}
	if t.root == nil || p.Depth > 0 && c.Depth-t.root.Depth >= p.Depth {
		return nil
	}
	end := "}"
	if t.begun == c {
		t.begun = nil
		end = function(c) + ";"
	} else if err := p.begin(t); err != nil {
		return err
	}
	end += p.remark(t, c, end == "}")
	if err := p.line(t, c, duration(c.Time(p.Now())), end); err != nil {
		return err
	}
	if c == t.root {
		return p.over(t)
	}
	return nil
}

// remark is what there is to say at the end of a call.
func (p *Printer) remark(t *thread, c *calls.Call, closing bool) string {
	var parts []string
	out, _ := c.Out.(Out)
	if closing && t.broken {
		parts = append(parts, quote.Plain(name(c)))
	}
	if out.Text != "" {
		parts = append(parts, out.Text)
	}
	switch c.End {
	case calls.Left:
		if p.LeftOut[c.Func.Name] {
			parts = append(parts, "left out from here on")
			break
		}
		parts = append(parts, "no return was seen: an exception, longjmp, or a lost hit")
	case calls.Open:
		parts = append(parts, "has not returned")
	}
	if len(parts) == 0 {
		return ""
	}
	return " /* " + strings.Join(parts, "; ") + " */"
}

// over ends a tree.
func (p *Printer) over(t *thread) error {
	c := t.root
	t.root, t.broken = nil, false
	if !p.chooses() {
		return p.shown()
	}
	out, _ := c.Out.(Out)
	lines, count := t.lines, t.count
	t.lines, t.count = t.lines[:0], 0
	if cap(t.lines) > 1<<20 {
		t.lines = nil
	}
	if !(p.Slower > 0 && c.Time(p.Now()) >= p.Slower || p.Failed && (out.Failed || p.LeftFails && c.End == calls.Left && !p.LeftOut[c.Func.Name])) {
		return nil
	}
	if p.full() {
		return results.ErrStop
	}
	if n := count - maxLines - 1; n > 0 { // its end is there
		p.Cut += uint64(n)
		lines = fmt.Appendf(lines, "# %d more lines of this tree are left out\n", n)
	}
	lines = append(lines, '\n')
	if _, err := p.W.Write(lines); err != nil {
		return err
	}
	return p.shown()
}

// shown counts a tree.
func (p *Printer) shown() error {
	p.Shown++
	if p.full() {
		return results.ErrStop
	}
	return nil
}

// full reports whether as many trees as are wanted have been shown.
func (p *Printer) full() bool { return p.Limit > 0 && p.Shown >= p.Limit }

// line writes a line of a call, or keeps it until its tree is over.
func (p *Printer) line(t *thread, c *calls.Call, took, text string) error {
	task := quote.Plain(c.Thread.Comm) + "-" + strconv.Itoa(c.Thread.TID)
	indent := strings.Repeat("  ", min(c.Depth-t.root.Depth, 100))
	if p.chooses() {
		// The last line, its root's end, is always kept.
		if t.count++; t.count <= maxLines || c == t.root {
			t.lines = fmt.Appendf(t.lines, "%3d)  %-20s | %-13s |  %s%s\n", c.CPU, task, took, indent, text)
		}
		return nil
	}
	if p.last != nil && p.last != t {
		p.last.broken = true
	}
	p.last = t
	_, err := fmt.Fprintf(p.W, "%3d)  %-20s | %-13s |  %s%s\n", c.CPU, task, took, indent, text)
	return err
}

// Flush writes the first lines of calls that go on, of trees that are shown as they come.
func (p *Printer) Flush() error {
	if p.chooses() {
		return nil
	}
	for _, t := range p.threads {
		if t.root == nil {
			continue
		}
		if err := p.begin(t); err != nil {
			return err
		}
	}
	return nil
}

func name(c *calls.Call) string { return c.Func.String() }

func function(c *calls.Call) string {
	args, _ := c.In.(string)
	text := quote.Plain(name(c))
	// A name of C++ or Rust may have its parameters.
	return text + "(" + args + ")"
}

// duration has the kernel's form: a mark for what took long, and microseconds.
func duration(ns uint64) string {
	mark := " "
	switch {
	case ns > 1e9:
		mark = "$"
	case ns > 100e6:
		mark = "@"
	case ns > 10e6:
		mark = "*"
	case ns > 1e6:
		mark = "#"
	case ns > 100e3:
		mark = "!"
	case ns > 10e3:
		mark = "+"
	}
	digits := fmt.Sprintf("%d.%03d", ns/1000, ns%1000)
	if len(digits) > 7 {
		digits = digits[:max(7, strings.IndexByte(digits, '.'))]
	}
	return fmt.Sprintf("%s %7s us", mark, strings.TrimSuffix(digits, "."))
}
