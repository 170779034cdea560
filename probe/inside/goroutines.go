package inside

import (
	"context"
	"debug/dwarf"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"

	"kprobe/probe/results"
	"kprobe/symbols"
	"kprobe/symbols/debuginfo"
	"kprobe/symbols/unwind"

	"github.com/go-delve/delve/pkg/dwarf/regnum"
)

// The bounds of goroutines.
const (
	maxGoroutines = 20000
	maxG          = 4096 // bytes of a runtime.g that are read
	goWord        = 8
)

// gLayout is where a runtime.g has what.
type gLayout struct{ sp, pc, bp, status, goid, since, reason uint64 }

// The states of goroutines (runtime2.go).
const (
	gRunnable = 1
	gWaiting  = 4
	gPreempt  = 9
	gScan     = 0x1000
)

// goroutines lists a Go program's goroutines that no thread runs: those that wait. own is
// how many of the runtime's own there are besides; more how many were left out.
func (l *looker) goroutines(ctx context.Context, open []results.OpenCall) (out []*results.Goroutine, own, more int, err error) {
	m := l.goModule()
	if m == nil {
		return nil, 0, 0, nil
	}
	at, ok := readLayout(m.File)
	all, _, aerr := l.space.Data(m.Name, "runtime.allgs")
	if !ok || aerr != nil {
		return nil, 0, 0, results.ErrNoGoroutines
	}
	le := binary.LittleEndian
	head := l.read(uint64(all), 16)
	if len(head) < 16 {
		return nil, 0, 0, results.ErrNoGoroutines
	}
	n := le.Uint64(head[8:])
	if n > maxGoroutines {
		more = int(min(n-maxGoroutines, 1<<31))
		n = maxGoroutines
	}
	list := l.read(le.Uint64(head), int(n)*goWord)
	byG := map[uint64][]results.OpenCall{}
	for _, c := range open {
		if c.G != 0 {
			byG[c.G] = append(byG[c.G], c)
		}
	}
	reasons := l.reasons(m)
	for i := 0; i+goWord <= len(list); i += goWord {
		if ctx.Err() != nil {
			return out, own, more + (len(list)-i)/goWord, nil
		}
		g := l.goroutine(le.Uint64(list[i:]), at, reasons)
		switch {
		case g == nil:
			continue
		case isRuntimes(g.Frames):
			own++
			continue
		}
		markGo(g, byG[g.Addr])
		out = append(out, g)
	}
	slices.SortFunc(out, func(a, b *results.Goroutine) int { return int(int64(a.ID) - int64(b.ID)) })
	return out, own, more, nil
}

func (l *looker) goModule() *symbols.Module {
	for _, m := range l.space.Modules() {
		if m.Main && m.File.IsGo() {
			return m
		}
	}
	return nil
}

// goroutine reads one; nil: it has ended, or a thread runs it.
func (l *looker) goroutine(addr uint64, at *gLayout, reasons []string) *results.Goroutine {
	b := l.read(addr, int(at.last()+goWord))
	if len(b) < int(at.last()+goWord) {
		return nil
	}
	le := binary.LittleEndian
	g := &results.Goroutine{ID: le.Uint64(b[at.goid:]), Addr: addr}
	switch le.Uint32(b[at.status:]) &^ gScan {
	case gWaiting:
		g.Status = "waits"
		if r := int(b[at.reason]); r < len(reasons) {
			g.Reason = reasons[r]
		}
		g.Since = le.Uint64(b[at.since:])
	case gRunnable, gPreempt:
		g.Status = "can run"
	default:
		return nil
	}
	var r unwind.Regs
	sp := le.Uint64(b[at.sp:])
	r.Set(unwind.SP, sp)
	r.Set(unwind.PC, le.Uint64(b[at.pc:]))
	r.Set(regnum.AMD64_Rbp, le.Uint64(b[at.bp:]))
	hi := le.Uint64(b[goWord:]) // stack.hi
	if hi <= sp || hi-sp > maxCopy {
		hi = sp + maxCopy
	}
	g.Frames, g.End = l.walk(r, &unwind.Stack{Base: sp, Bytes: l.read(sp, int(hi-sp))})
	if n := len(g.Frames); n > 0 && strings.HasPrefix(g.Frames[n-1].Name, "runtime.goexit") {
		g.Frames, g.End = g.Frames[:n-1], symbols.StackWhole
	}
	return g
}

// isRuntimes reports whether a goroutine is the runtime's own, as its tracebacks have
// it: one that begins with a function of the runtime, but main.
func isRuntimes(frames []results.InsideFrame) bool {
	n := len(frames)
	if n == 0 {
		return false
	}
	name := frames[n-1].Name
	return strings.HasPrefix(name, "runtime.") && name != "runtime.main"
}

// markGo notes which frames are calls that probes have seen begin: those of its
// functions, the outermost first.
func markGo(g *results.Goroutine, open []results.OpenCall) {
	slices.SortFunc(open, func(a, b results.OpenCall) int { return int(int64(a.Entry) - int64(b.Entry)) })
	for i := len(g.Frames) - 1; i >= 0 && len(open) > 0; i-- {
		if f := &g.Frames[i]; f.Name == open[0].Func {
			f.Open = &open[0]
			open = open[1:]
		}
	}
}

func (at *gLayout) last() uint64 {
	return max(at.sp, at.pc, at.bp, at.status, at.goid, at.since, at.reason)
}

// readLayout finds where a runtime.g has what, by the program's debug information.
func readLayout(f *symbols.File) (*gLayout, bool) {
	at := &gLayout{}
	found := 0
	err := f.ReadDebug(func(d *debuginfo.Data) error {
		g, ok := d.FindType("runtime.g", nil)
		if !ok {
			return nil
		}
		buf, ok := d.FindType("runtime.gobuf", g.Unit())
		if !ok {
			return nil
		}
		sched := uint64(0)
		take := func(e debuginfo.Entry, base *uint64, want map[string]*uint64) {
			for c := range e.Children() {
				p := want[c.Str(dwarf.AttrName)]
				if c.Tag() != dwarf.TagMember || p == nil {
					continue
				}
				if off, ok := c.Int(dwarf.AttrDataMemberLoc); ok && off >= 0 && off < maxG {
					*p = uint64(off) + *base
					found++
				}
			}
		}
		none := uint64(0)
		take(g, &none, map[string]*uint64{"sched": &sched, "atomicstatus": &at.status, "goid": &at.goid, "waitsince": &at.since, "waitreason": &at.reason})
		take(buf, &sched, map[string]*uint64{"sp": &at.sp, "pc": &at.pc, "bp": &at.bp})
		return nil
	})
	return at, err == nil && found == 8
}

// reasons are what the runtime calls the reasons to wait.
func (l *looker) reasons(m *symbols.Module) []string {
	at, size, err := l.space.Data(m.Name, "runtime.waitReasonStrings")
	if err != nil || size > 4096 {
		return nil
	}
	b := l.read(uint64(at), int(size))
	var out []string
	for i := 0; i+16 <= len(b); i += 16 {
		n := binary.LittleEndian.Uint64(b[i+8:])
		text := strconv.Itoa(i / 16)
		if n <= 100 {
			text = string(l.read(binary.LittleEndian.Uint64(b[i:]), int(n)))
		}
		out = append(out, text)
	}
	return out
}
