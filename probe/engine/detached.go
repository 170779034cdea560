package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"kprobe/internal/procfs"
	"kprobe/probe/book"
	"kprobe/probe/detour"
	"kprobe/probe/plan"
	"kprobe/probe/planner"
	"kprobe/probe/results"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
)

// How probes are left alone
//
// A session with Options.Detach can leave its processes with the probes in them, as recorders.
// Nobody traces such a process. Detours write into rings in which the newest records overwrite
// the oldest (probe/ring, overwrite.go). Whoever may trace the process may read the records, switch
// probes on and off, and remove them. A process goes through these states:
//
//	armed     the probes are armed as in any session; those that need a tracer are removed
//	          again, with the reason
//	written   the book describes the records; the header has one moment by both clocks
//	open      the gate is open: detours take hits
//	left      the header says that the probes are to stay (ring.ModeDetached): nobody removes
//	          them because their tracer is gone
//	alone     no thread is traced any more
//
// If kprobe is killed before the state "left", recovery removes the probes as usual. If it is
// killed later, the probes stay.
//
// The gate is a byte in a page that is zero in forked children (MADV_WIPEONFORK). So a child has
// the jumps, but its detours record nothing.

// bookRoom is the size in bytes that the book may have in the memory file. Only the bytes that are
// written take memory.
const bookRoom = 64 << 20

// LeftOut is a probe that can't be left alone.
type LeftOut struct {
	PID   int
	Event *results.Event
	Place string // SYM, SYM+0xOFF or 0xADDR; "": the whole event
	Why   string // the reason
}

// ErrNothingLeft says that no probe of a session can be left alone.
var ErrNothingLeft = errors.New("none of the probes can be detached")

// LeaveAlone detaches from every process and leaves its probes in it. A process that it could not
// leave stays in the session, and the error names it.
func (s *Engine) LeaveAlone(ctx context.Context) error {
	var errs []error
	for _, main := range []bool{true, false} {
		for pid, tg := range s.Targets {
			if tg.IsMain() != main {
				continue
			}
			if err := tg.leaveAlone(ctx); err != nil && !errors.Is(err, tracee.ErrGone) {
				errs = append(errs, fmt.Errorf("process %d: %w", pid, err))
				continue
			}
			delete(s.Targets, pid)
		}
	}
	if len(s.Targets) == 0 {
		s.Closed, s.Stopping = true, true
		s.Alone.Store(true)
	}
	return errors.Join(errs...)
}

// LeaveOut removes the probes that can't be left alone, and lists them. The error says why a
// breakpoint stays in the text.
func (tg *Target) LeaveOut(ctx context.Context) (out []LeftOut, err error) {
	// A removal may have other probes planned anew, and these may then need a tracer.
	for first := true; ; first = false {
		some := tg.LeftOut()
		if out = append(out, some...); first {
			tg.awaited.take()
			tg.watchLibraries(ctx)
		}
		drop := map[*Placed]bool{}
		for _, p := range tg.needTracers() {
			drop[p] = true
			p.feed.leave(p, true)
		}
		if len(drop) == 0 {
			break
		}
		if err := tg.change(context.WithoutCancel(ctx), &changeset{drop: drop}); err != nil {
			return out, err
		}
	}
	for _, st := range tg.Sites {
		if st.Armed {
			return out, fmt.Errorf("a breakpoint stays at %v", st.Addr)
		}
	}
	return out, nil
}

// LeftOut lists the definitions and probes that can't be left alone, by event and place.
func (tg *Target) LeftOut() (out []LeftOut) {
	pid := tg.Proc.PID()
	for _, d := range tg.awaited.defs {
		out = append(out, LeftOut{PID: pid, Event: &d.Ev.Event, Why: "its library is not loaded, and nobody would see it loaded later"})
	}
	for _, p := range tg.needTracers() {
		if p.Rarely().Birth == nil {
			out = append(out, LeftOut{PID: pid, Event: &p.Ev.Event, Place: p.Where.Name(), Why: p.needsTracer()})
		}
	}
	slices.SortStableFunc(out, func(a, b LeftOut) int { return strings.Compare(a.Event.Name+a.Place, b.Event.Name+b.Place) })
	return out
}

// needTracers lists the probes that need a tracer to take hits. A probe that is a breakpoint only
// because of another probe's breakpoint is listed only if no other kind is left: it may become a
// jump when the other probe is removed.
func (tg *Target) needTracers() []*Placed {
	var own, others []*Placed
	for p := range tg.Placed {
		switch {
		case p.needsTracer() == "":
		case p.Why == planner.WhyOther && p.data() == nil && !p.user().handles():
			others = append(others, p)
		default:
			own = append(own, p)
		}
	}
	if len(own) == 0 {
		return others
	}
	return own
}

// needsTracer is the reason why a probe takes no hits without a tracer; "" if it takes them.
func (p *Placed) needsTracer() string {
	switch {
	case p.user().handles():
		return "its handlers are kprobe's"
	case p.data() != nil:
		return "it watches memory, whose traps a tracer takes"
	case !p.Optimized || !p.Tactic.Jump():
		if p.Why != "" {
			return "it is a breakpoint: " + p.Why
		}
		return "it is a breakpoint"
	case p.leavesByTrap():
		return "its function is left at an instruction that has a breakpoint"
	case p.target.between(p):
		return "it is a short jump in Go's code: a goroutine may be taken off its thread between the two jumps, for as long as the probe stays and longer"
	}
	return ""
}

// between reports whether a probe has a short jump in Go code. There Go's runtime may preempt a
// goroutine by a signal between the short jump and the long one: the long jump lies in Go code,
// not in kprobe's.
func (tg *Target) between(p *Placed) bool {
	if !p.Where.Module.File.IsGo() {
		return false
	}
	for w := range p.patched {
		for q := tg.Patches.Covering(w.Site.Addr, 1); q != nil; q = q.island {
			if q.Plan.Tactic == plan.ShortJump {
				return true
			}
		}
	}
	return false
}

// leaveAlone writes the book and the clock, opens the gate and detaches from the process.
func (tg *Target) leaveAlone(ctx context.Context) error {
	if !tg.IsMain() || tg.Area == nil {
		return tg.ignoreLate(tg.Proc.Detach(ctx, nil))
	}
	tg.watchBirths(ctx)
	if err := tg.writeBook(); err != nil {
		return err
	}
	if err := tg.writeClock(); err != nil {
		return err
	}
	if tg.Engine.timed() {
		if err := tg.layTimes(); err != nil {
			return err
		}
	}
	if err := tg.noteHost(); err != nil {
		return err
	}
	tg.writeGroups()
	f, h := tg.Area.File, tg.Area.File.Layout.Header.Off
	err := tg.Proc.Detach(ctx, func(stopped []*tracee.Thread) error {
		tg.Feed.over.Store(true)
		tg.useSequences(stopped)
		if err := tg.openGate(); err != nil {
			return err
		}
		f.Store32(h+ring.ModeOff, f.Load32(h+ring.ModeOff)|ring.ModeDetached)
		f.Store64(h+ring.TracerStartOff, 0)
		f.Store32(h+ring.TracerOff, 0)
		return nil
	})
	return tg.ignoreLate(err)
}

// writeClock writes to the header how time stamps become times: one moment by both clocks, and the
// rate of the time stamp counter.
func (tg *Target) writeClock() error {
	now, rate, err := tg.Feed.rate()
	if err != nil {
		return err
	}
	f, h := tg.Area.File, tg.Area.File.Layout.Header.Off
	f.Store64(h+ring.TimeAt, now.TSC)
	f.Store64(h+ring.TimeAt+8, uint64(now.NS))
	f.Store64(h+ring.TimeAt+16, rate)
	return nil
}

// writeBook writes the book to the memory file. Its magic number comes last, so that no reader
// takes half a book for a whole one.
func (tg *Target) writeBook() error {
	b, err := tg.book()
	if err != nil {
		return err
	}
	text, err := b.Encode()
	if err != nil {
		return err
	}
	f := tg.Area.File
	at := f.Layout.Book
	if int64(len(text)) > at.Size {
		return fmt.Errorf("the description of %d probes takes %d MB, more than there is room for", len(b.Probes), len(text)>>20)
	}
	dst := f.Mem[at.Off:][:len(text)]
	clear(dst[:book.HeadSize])
	copy(dst[book.HeadSize:], text[book.HeadSize:])
	copy(dst, text[:8])
	f.Store32(at.Off+8, 1)
	return nil
}

// book describes the target and its probes.
func (tg *Target) book() (*book.Book, error) {
	pid := tg.Proc.PID()
	proc := procfs.Process(pid)
	now, wall := tg.Engine.clock.Now(), time.Now()
	b := &book.Book{PID: pid, Start: procfs.StartTime(pid), Mono: now, Wall: wall.UnixNano(), Boot: procfs.BootID()}
	b.Comm, _ = proc.Thread(pid).Comm() // fails only if the process is gone
	b.Host, _ = os.Hostname()
	b.Command, b.Kprobe, b.Locked = proc.Command(), tg.Engine.Opts.Version, tg.barred
	for _, m := range tg.Space.Modules() {
		one := book.Module{Path: m.Path, Main: m.Main, Bias: m.Bias, Maps: m.Maps}
		if m.File != nil {
			one.BuildID = m.File.BuildID
		}
		b.Modules = append(b.Modules, one)
	}
	layouts := map[string]int{}
	for _, p := range tg.Feed.all() {
		text, err := p.Program.Portable()
		if err != nil {
			return nil, err
		}
		n, known := layouts[string(text)]
		if !known {
			n = len(b.Layouts)
			layouts[string(text)] = n
			b.Layouts = append(b.Layouts, json.RawMessage(bytes.Clone(text)))
		}
		one := book.Probe{
			ID: p.Id, Group: p.Ev.Group, Event: p.Ev.Name, Return: p.Ev.Return, Def: p.Def.Text, Module: p.Def.Place.Module,
			Layout: n, Times: detour.TimeSlots(p.Program), Addr: uint64(p.Where.Addr), Func: p.returnsFrom(), How: p.Tactic.String(),
			Semaphore: uint64(p.semaphore()),
		}
		one.Symbol, one.Off, one.Size, _, _ = tg.Space.SymbolizeShort(p.Where.Addr)
		b.Probes = append(b.Probes, one)
	}
	return b, nil
}

// all lists the armed probes in the order of their numbers, without kprobe's own (Birth).
func (t *Feed) all() (out []*Placed) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, p := range t.Ids {
		if p != nil && !p.removed && p.Rarely().Birth == nil {
			out = append(out, p)
		}
	}
	return out
}

// LeaveError lists what can't be left alone, with the reasons. It is an ErrNothingLeft.
type LeaveError struct{ Out []LeftOut }

// Error implements error.
func (e *LeaveError) Error() string {
	var b strings.Builder
	for i, x := range e.Out {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%s/%s", x.Event.Group, x.Event.Name)
		if x.Place != "" {
			b.WriteString(" at " + x.Place)
		}
		b.WriteString(": " + x.Why)
		if n := len(e.Out) - i - 1; i == 4 && n > 0 {
			fmt.Fprintf(&b, "; and %d more", n)
			break
		}
	}
	return b.String()
}

// Unwrap returns ErrNothingLeft.
func (e *LeaveError) Unwrap() error { return ErrNothingLeft }

// WouldLeaveOut returns a *LeaveError if some probes of the session can't be left alone, else nil.
func (s *Engine) WouldLeaveOut() error {
	var out []LeftOut
	for _, tg := range s.Targets {
		if tg.IsMain() {
			out = append(out, tg.LeftOut()...)
		}
	}
	if len(out) == 0 {
		return nil
	}
	return &LeaveError{out}
}
