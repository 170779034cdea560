package graph

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"kprobe/internal/plural"
	"kprobe/internal/quote"
	"kprobe/probe/results"
	"kprobe/symbols"
)

// NowHeader names the columns of what threads are inside of.
const NowHeader = "# CPU  TASK-PID               SINCE                     FUNCTION CALLS\n" +
	"# |    |    |                  |   |                     |   |   |   |\n"

// Now writes what the threads of a process are inside of, each as a tree, the outermost
// call first. Threads with the same calls stand together. mono is the time of
// CLOCK_MONOTONIC, in ns, by which calls that probes have seen begin are timed; lines
// says that source lines are wanted.
func Now(w io.Writer, p *results.Inside, mono uint64, lines bool) error {
	var b []byte
	name := func(tid int) string {
		for _, t := range p.Threads {
			if t.TID == tid {
				return task(t)
			}
		}
		return strconv.Itoa(tid)
	}
	b = fmt.Appendf(b, "# %s-%d: %s, %s\n", quote.Plain(p.Comm), p.PID, plural.Of(len(p.Threads), "thread", "threads"), states(p))
	if len(p.Deadlock) > 0 {
		b = append(b, "# deadlock: "...)
		for _, tid := range p.Deadlock {
			b = append(append(b, name(tid)...), " waits for "...)
		}
		b = append(append(b, name(p.Deadlock[0])...), '\n')
	}
	for _, g := range groups(p, lines) {
		b = append(b, '\n')
		b = g.head(b)
		b = g.tree(b, mono, lines, name)
	}
	if p.More > 0 {
		b = fmt.Appendf(b, "\n# %s more aren't shown\n", plural.Of(p.More, "thread", "threads"))
	}
	b = goroutines(b, p, mono, lines)
	_, err := w.Write(b)
	return err
}

func task(t *results.InsideThread) string { return quote.Plain(t.Comm) + "-" + strconv.Itoa(t.TID) }

// states counts threads by what they do.
func states(p *results.Inside) string {
	count := map[string]int{}
	for _, t := range p.Threads {
		count[does(t)]++
	}
	var parts []string
	for _, s := range []string{"running", "sleeping", "in uninterruptible sleep", "stopped by a signal", "stopped by a tracer", "other"} {
		if n := count[s]; n > 0 {
			parts = append(parts, strconv.Itoa(n)+" "+s)
		}
	}
	return strings.Join(parts, ", ")
}

func does(t *results.InsideThread) string {
	switch t.State {
	case 'R':
		return "running"
	case 'S', 'I':
		return "sleeping"
	case 'D':
		return "in uninterruptible sleep"
	case 'T':
		return "stopped by a signal"
	case 't':
		return "stopped by a tracer"
	}
	return "other"
}

// group are threads with the same calls.
type group struct{ threads []*results.InsideThread }

// groups puts threads with the same calls together, in order of the first of each.
// Those of which more is known than the calls stand alone.
func groups(p *results.Inside, lines bool) []*group {
	var out []*group
	at := map[string]*group{}
	for _, t := range p.Threads {
		var key strings.Builder
		alone := t.Waits != nil || t.Samples > 0 || len(t.Frames) == 0
		for i := range t.Frames {
			f := &t.Frames[i]
			fmt.Fprintf(&key, "%x %t\n", f.Addr, f.Guess)
			alone = alone || f.Open != nil
		}
		if t.Call != nil {
			key.WriteString(t.Call.Name)
		}
		fmt.Fprintf(&key, "%c %v %d", t.State, t.End, t.Tracer)
		if g := at[key.String()]; g != nil && !alone {
			g.threads = append(g.threads, t)
			continue
		}
		g := &group{[]*results.InsideThread{t}}
		if !alone {
			at[key.String()] = g
		}
		out = append(out, g)
	}
	return out
}

// maxNames bounds the threads that a heading names.
const maxNames = 8

// head says which threads, and what the kernel says of them.
func (g *group) head(b []byte) []byte {
	b = append(b, "# "...)
	for i, t := range g.threads[:min(len(g.threads), maxNames)] {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(b, task(t)...)
	}
	if n := len(g.threads) - maxNames; n > 0 {
		b = fmt.Appendf(b, " and %d more", n)
	}
	b = append(b, ": "...)
	t, many := g.threads[0], len(g.threads) > 1
	verb := func(one, several string) {
		if many {
			one = several
		}
		b = append(b, one...)
	}
	switch t.State {
	case 'R':
		verb("runs", "run")
		if t.Samples > 0 {
			b = fmt.Appendf(b, ", of %d samples", t.Samples)
		}
	case 'D':
		b = append(b, "can't be interrupted"...)
		if t.Wait != "" {
			b = append(append(b, ", in the kernel's "...), quote.Plain(t.Wait)...)
		}
	case 'T':
		verb("stopped by a signal: kill -CONT lets it go on", "stopped by a signal: kill -CONT lets them go on")
	case 't':
		b = append(b, "stopped by a tracer"...)
		if t.Tracer != 0 {
			b = fmt.Appendf(b, ", process %d", t.Tracer)
		}
	default:
		verb("sleeps", "sleep")
	}
	if since := g.since(); since != "" {
		verb(", hasn't run for ", ", haven't run for ")
		b = append(b, since...)
	}
	if t.Moved {
		b = append(b, "; it ran while kprobe read its stack: the calls may be from several moments"...)
	}
	return append(b, '\n')
}

// since is how long the threads haven't run, from the shortest to the longest.
func (g *group) since() string {
	var list []uint64
	for _, t := range g.threads {
		if t.Since > 0 {
			list = append(list, t.Since)
		}
	}
	if len(list) == 0 {
		return ""
	}
	low, high := slices.Min(list), slices.Max(list)
	if a, b := seconds(low), seconds(high); a != b {
		return a + " to " + b
	}
	return seconds(high)
}

func seconds(ns uint64) string {
	if ns < 1e9 {
		return fmt.Sprintf("%d ms", ns/1e6)
	}
	return fmt.Sprintf("%d.%03d s", ns/1e9, ns/1e6%1e3)
}

// place is where a thread or a goroutine is, as lines of a tree have it.
type place struct {
	b     []byte
	cpu   string
	task  string
	mono  uint64
	lines bool
	depth int
}

func (p *place) line(since uint64, text string) {
	took := ""
	if since > 0 {
		took = duration(since)
	}
	p.b = fmt.Appendf(p.b, "%3s)  %-20s | %-13s |  %s%s\n", p.cpu, p.task, took, strings.Repeat("  ", min(p.depth, 100)), text)
}

// frames writes calls, the outermost first.
func (p *place) frames(frames []results.InsideFrame, end symbols.StackEnd) {
	switch {
	case end == symbols.StackTruncated:
		p.line(0, "/* the outer calls are farther up the stack than kprobe looked */")
	case end == symbols.StackUnknown:
		p.line(0, "/* nothing says who called this */")
	case len(frames) >= results.MaxInside:
		p.line(0, "/* there are more outer calls */")
	}
	for i := len(frames) - 1; i >= 0; i-- {
		f := &frames[i]
		text := quote.Plain(f.Name)
		if f.Signal {
			p.line(0, text)
			continue
		}
		if f.Guess {
			text = "? " + text
		}
		text += "() {"
		var notes []string
		if p.lines && f.Line > 0 {
			notes = append(notes, quote.Plain(f.File)+":"+strconv.Itoa(f.Line))
		}
		if f.Inlined {
			notes = append(notes, "inlined")
		}
		if len(notes) > 0 {
			text += " /* " + strings.Join(notes, ", ") + " */"
		}
		since := uint64(0)
		if f.Open != nil && f.Open.Entry != 0 && f.Open.Entry < p.mono {
			since = p.mono - f.Open.Entry
		}
		p.line(since, text)
		p.depth++
	}
}

// tree writes the calls of a group's first thread.
func (g *group) tree(b []byte, mono uint64, lines bool, name func(int) string) []byte {
	t := g.threads[0]
	p := &place{b: b, cpu: strconv.Itoa(t.CPU), task: task(t), mono: mono, lines: lines}
	p.frames(t.Frames, t.End)
	if t.Call != nil {
		since, args := t.Since, quote.Plain(t.Call.Args)
		if len(g.threads) > 1 {
			since = 0
			if !sameArgs(g.threads) {
				args = "…"
			}
		}
		text := t.Call.Name + "(" + args + ");"
		if x := t.Waits; x != nil {
			who := quote.Plain(x.Text)
			if x.TID != 0 {
				who = name(x.TID) + " has it"
			}
			text += " /* " + x.What + ": " + who + " */"
		}
		p.line(since, text)
	}
	if len(t.Inner) > 0 {
		var parts []string
		for _, c := range t.Inner[:min(len(t.Inner), 4)] {
			parts = append(parts, fmt.Sprintf("%s %d", quote.Plain(c.Name), c.Times))
		}
		if n := len(t.Inner) - len(parts); n > 0 {
			parts = append(parts, fmt.Sprintf("%d others", n))
		}
		p.line(0, "/* innermost, in samples: "+strings.Join(parts, ", ")+" */")
	}
	if len(t.Frames) == 0 && t.Call == nil {
		p.line(0, "/* not known */")
	}
	return p.b
}

func sameArgs(list []*results.InsideThread) bool {
	for _, t := range list[1:] {
		if t.Call == nil || t.Call.Args != list[0].Call.Args {
			return false
		}
	}
	return true
}
