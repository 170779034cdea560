package probe

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
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
)

// How probes are left alone
//
// A session with Options.Detach can leave its processes with the probes in them: a
// recorder. Nobody traces the process then; detours write into rings whose newest
// records take the place of the oldest (probe/ring, overwrite.go), and whoever may trace
// the process reads them, switches probes on and off and takes them out.
//
//	armed     as any session's; what needs a tracer is taken out again, with its reason
//	written   the book says what the records are, the header has a moment by both clocks
//	open      the gate is: detours take hits
//	left      the header says that the probes are to stay (ring.ModeDetached): from here
//	          on nobody takes them out because their tracer is gone
//	alone     no thread is traced any more
//
// A kprobe that is killed before left is recovered from as ever; after it, the probes are
// there.
//
// The gate is a byte in a page that forked children find zeroed (MADV_WIPEONFORK): they
// have the jumps, and record nothing.

// bookRoom is the room for the book in the memory file, of which only what is written
// takes memory.
const bookRoom = 64 << 20

// LeftOut is a probe that can't be left alone.
type LeftOut struct {
	PID   int
	Event *Event
	Place string // SYM, SYM+0xOFF or 0xADDR; "" is the whole event
	Why   string
}

// ErrNothingLeft says that no probe of a session can be left alone.
var ErrNothingLeft = errors.New("none of the probes can be left alone")

// leaveAlone leaves every process.
func (s *engine) leaveAlone(ctx context.Context) error {
	var errs []error
	for _, main := range []bool{true, false} {
		for pid, tg := range s.targets {
			if tg.isMain() != main {
				continue
			}
			if err := tg.leaveAlone(ctx); err != nil && !errors.Is(err, tracee.ErrGone) {
				errs = append(errs, fmt.Errorf("process %d: %w", pid, err))
				continue
			}
			delete(s.targets, pid)
		}
	}
	if len(s.targets) == 0 {
		s.closed, s.stopping = true, true
		s.alone.Store(true)
	}
	return errors.Join(errs...)
}

// leaveOut takes out what can't be left alone.
func (tg *target) leaveOut(ctx context.Context) (out []LeftOut, err error) {
	// What stays may be planned anew, and need a tracer then.
	for first := true; ; first = false {
		some := tg.leftOut()
		if out = append(out, some...); first {
			tg.pending = nil
			tg.watchLibraries(ctx)
		}
		drop := map[*placed]bool{}
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
	for _, st := range tg.sites {
		if st.armed {
			return out, fmt.Errorf("a breakpoint stays at %v", st.addr)
		}
	}
	return out, nil
}

// leftOut lists what can't be left alone.
func (tg *target) leftOut() (out []LeftOut) {
	pid := tg.proc.PID()
	for _, d := range tg.pending {
		out = append(out, LeftOut{PID: pid, Event: &d.ev.Event, Why: "its library is not mapped, and nobody will see it come"})
	}
	for _, p := range tg.needTracers() {
		if p.birth == nil {
			out = append(out, LeftOut{PID: pid, Event: &p.ev.Event, Place: p.where.Name, Why: p.needsTracer()})
		}
	}
	slices.SortStableFunc(out, func(a, b LeftOut) int { return strings.Compare(a.Event.Name+a.Place, b.Event.Name+b.Place) })
	return out
}

// needTracers lists the probes that take no hits where nobody traces. Those that another's
// breakpoint keeps from being jumps are among them once there is no such breakpoint.
func (tg *target) needTracers() []*placed {
	var own, others []*placed
	for p := range tg.placed {
		switch {
		case p.needsTracer() == "":
		case p.why == whyOther && p.data == nil && !p.user.handles():
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

// needsTracer says why a probe takes no hits where nobody traces; "": it does.
func (p *placed) needsTracer() string {
	switch {
	case p.user.handles():
		return "its handlers are kprobe's"
	case p.data != nil:
		return "it watches memory, whose traps a tracer takes"
	case !p.optimized || !p.tactic.Jump():
		if p.why != "" {
			return "it is a breakpoint: " + p.why
		}
		return "it is a breakpoint"
	case p.leavesByTrap():
		return "its function is left at an instruction that has a breakpoint"
	case p.target.between(p):
		return "it is a short jump in Go's code: a goroutine may be taken off its thread between the two jumps, for as long as the probe stays and longer"
	}
	return ""
}

// between reports whether a probe has a short jump in code that Go's runtime preempts by
// signals, anywhere but in kprobe's own.
func (tg *target) between(p *placed) bool {
	if !p.where.Module.File.IsGo() {
		return false
	}
	wants := p.wants
	if p.byExits != nil {
		wants = slices.Concat(wants, p.byExits.exits)
	}
	return slices.ContainsFunc(wants, func(w patchRequest) bool {
		q := tg.patches.covering(w.Site.Addr, 1)
		return q != nil && q.plan.Tactic == plan.ShortJump
	})
}

// leaveAlone writes down what a reader must know, and leaves the process.
func (tg *target) leaveAlone(ctx context.Context) error {
	if !tg.isMain() || tg.area == nil {
		return tg.ignoreLate(tg.proc.Detach(ctx, nil))
	}
	tg.watchBirths(ctx)
	if err := tg.writeBook(); err != nil {
		return err
	}
	if err := tg.writeClock(); err != nil {
		return err
	}
	if tg.s.timed() {
		if err := tg.layTimes(); err != nil {
			return err
		}
	}
	f, h := tg.area.File, tg.area.File.Layout.Header.Off
	err := tg.proc.Detach(ctx, func(stopped []*tracee.Thread) error {
		tg.feed.over.Store(true)
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

// writeClock has the header say how time stamps become times.
func (tg *target) writeClock() error {
	now, rate, err := tg.feed.rate()
	if err != nil {
		return err
	}
	f, h := tg.area.File, tg.area.File.Layout.Header.Off
	f.Store64(h+ring.TimeAt, now.TSC)
	f.Store64(h+ring.TimeAt+8, uint64(now.NS))
	f.Store64(h+ring.TimeAt+16, rate)
	return nil
}

// writeBook writes the book.
func (tg *target) writeBook() error {
	b, err := tg.book()
	if err != nil {
		return err
	}
	text, err := b.Encode()
	if err != nil {
		return err
	}
	f := tg.area.File
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
func (tg *target) book() (*book.Book, error) {
	pid := tg.proc.PID()
	proc := procfs.Process(pid)
	now, wall := tg.s.clock.now(), time.Now()
	b := &book.Book{PID: pid, Start: procfs.StartTime(pid), Mono: now, Wall: wall.UnixNano(), Boot: procfs.BootID()}
	b.Comm, _ = proc.Thread(pid).Comm() // of a process that is gone
	b.Host, _ = os.Hostname()
	b.Command, b.Kprobe, b.Locked = proc.Command(), tg.s.opts.Version, tg.barred
	for _, m := range tg.space.Modules() {
		one := book.Module{Path: m.Path, Main: m.Main, Bias: m.Bias, Maps: m.Maps}
		if m.File != nil {
			one.BuildID = m.File.BuildID
		}
		b.Modules = append(b.Modules, one)
	}
	layouts := map[string]int{}
	for _, p := range tg.feed.all() {
		text, err := p.prog.Portable()
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
			ID: p.id, Group: p.ev.Group, Event: p.ev.Name, Return: p.ev.Return, Def: p.def.Text, Module: p.def.Place.Module,
			Layout: n, Times: detour.TimeSlots(p.prog), Addr: uint64(p.where.Addr), Func: p.fn, How: p.tactic.String(),
		}
		one.Symbol, one.Off, one.Size, _, _ = tg.space.SymbolizeShort(p.where.Addr)
		b.Probes = append(b.Probes, one)
	}
	return b, nil
}

// all lists the probes that are armed, by number.
func (t *feed) all() (out []*placed) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, p := range t.ids {
		if p != nil && !p.removed && p.birth == nil {
			out = append(out, p)
		}
	}
	return out
}

// LeaveError says why definitions can't be left alone.
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

// Unwrap gives ErrNothingLeft.
func (e *LeaveError) Unwrap() error { return ErrNothingLeft }

// wouldLeaveOut is the error of a session some of whose probes can't be left alone.
func (s *engine) wouldLeaveOut() error {
	var out []LeftOut
	for _, tg := range s.targets {
		if tg.isMain() {
			out = append(out, tg.leftOut()...)
		}
	}
	if len(out) == 0 {
		return nil
	}
	return &LeaveError{out}
}
