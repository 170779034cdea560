package vars

import (
	"debug/dwarf"
	"errors"
	"fmt"
	"strings"

	"kprobe/fetch"
	"kprobe/symbols"
	"kprobe/symbols/debuginfo"
)

// contextVariable is the thread-local variable in which a program publishes the trace and the
// span that a thread works for (OpenTelemetry, OTEP 4947). It holds the address of a record,
// or 0.
const contextVariable = "otel_thread_ctx_v1"

// newestGo is the last version of Go (1.N) whose layout of labels is known.
const newestGo = 26

// Offsets in the record.
const (
	contextTrace = 0  // 16 bytes, most significant first
	contextSpan  = 16 // 8 bytes
	contextValid = 24 // 1
)

// OfThread resolves a variable that each thread, or goroutine, has: $goid, $labels,
// $label.NAME, $trace_id, $span_id. m is the module of the place, or nil. byCode finds the
// members of runtime.g in a program without debug information. In a thread that doesn't have
// the variable, it is a fault. ok is false for other names.
func OfThread(space *symbols.Space, m *symbols.Module, name string, byCode GMember) (v fetch.Variable, ok bool, err error) {
	switch name {
	case "$goid":
		v, err = goroutineID(space, m, byCode)
	case "$trace_id", "$span_id":
		v, err = traceContext(space, name)
	case "$labels":
		v, err = goroutineLabels(space, m, byCode)
	default:
		label, ok := strings.CutPrefix(name, "$label.")
		if !ok {
			return v, false, nil
		}
		v, err = goroutineLabel(space, m, label, byCode)
	}
	v.Name, v.Behind = name, true
	return v, true, err
}

// GMember returns the offset of a member of Go's runtime.g in a file.
type GMember func(f *symbols.File, name string) (int64, error)

// goroutineID reads the number of the goroutine that a thread runs.
func goroutineID(space *symbols.Space, m *symbols.Module, byCode GMember) (v fetch.Variable, err error) {
	id, _, err := ofGoroutine(space, m, "goid", byCode)
	if err != nil {
		return v, err
	}
	v.Chain = id.load(8).whole()
	v.Type = fetch.Type{Base: fetch.Unsigned, Size: 8}
	return v, nil
}

// goroutineLabel returns the text of one of the goroutine's labels (runtime/pprof).
func goroutineLabel(space *symbols.Space, m *symbols.Module, name string, byCode GMember) (v fetch.Variable, err error) {
	at, form, err := labels(space, m, byCode)
	if err != nil {
		return v, err
	}
	text := at.load(8).step(fetch.Step{Op: fetch.StepLabel, Imm: form, Text: name})
	return textVariable(v, text.load(8), text.add(8).load(8)), nil
}

// goroutineLabels returns all labels of the goroutine.
func goroutineLabels(space *symbols.Space, m *symbols.Module, byCode GMember) (v fetch.Variable, err error) {
	at, form, err := labels(space, m, byCode)
	if err != nil {
		return v, err
	}
	v.InMemory = true
	v.Chain, v.Off = at.chain()
	v.Type = fetch.Type{Base: fetch.Container, Size: 8, Layout: &fetch.Layout{Name: "labels", Content: fetch.LabelsContent(form)}}
	return v, nil
}

// labels returns where a goroutine has its labels, and in which form.
func labels(space *symbols.Space, m *symbols.Module, byCode GMember) (at sym, form uint64, err error) {
	at, m, err = ofGoroutine(space, m, "labels", byCode)
	if err != nil {
		return at, 0, err
	}
	major, minor, ok := m.File.GoVersion()
	switch {
	case !ok:
		return at, 0, fmt.Errorf("%s doesn't say which version of Go compiled it, so the layout of labels is not known", m.Name)
	case major != 1 || minor > newestGo:
		return at, 0, fmt.Errorf("the layout of labels is known up to Go 1.%d; %s was compiled by Go %d.%d", newestGo, m.Name, major, minor)
	case minor < 24:
		form = fetch.LabelMap
	default:
		form = fetch.LabelList
	}
	return at, form, nil
}

// ofGoroutine returns where a member of the running goroutine is, and the program to which the
// goroutine belongs.
func ofGoroutine(space *symbols.Space, m *symbols.Module, member string, byCode GMember) (w sym, _ *symbols.Module, err error) {
	if m == nil || m.File == nil || !m.File.IsGo() {
		m = nil
		for _, x := range space.Modules() {
			if x.File != nil && x.File.IsGo() {
				m = x
				break
			}
		}
	}
	if m == nil {
		return w, nil, errors.New("the program has no goroutines: it is not a Go program")
	}
	tls, ok := m.File.GoTLS()
	if !ok || !m.Main {
		return w, nil, errors.New("it is not known where threads of this program keep their goroutine")
	}
	off, err := inGoroutine(m.File, member)
	if errors.Is(err, symbols.ErrNoDebugInfo) || errors.Is(err, fetch.ErrNoDebugInfo) {
		if off, err = byCode(m.File, member); err != nil {
			return w, nil, fmt.Errorf("%s has %w, and %w", m.Name, fetch.ErrNoDebugInfo, err)
		}
	}
	if err != nil {
		return w, nil, err
	}
	return register(fetch.RegFSBase).add(tls).load(8).add(off), m, nil
}

// inGoroutine returns the offset of a member of runtime.g, by debug information.
func inGoroutine(file *symbols.File, member string) (off int64, err error) {
	err = file.ReadDebug(func(d *debuginfo.Data) error {
		e, ok := d.FindType("runtime.g", nil)
		if !ok {
			return fmt.Errorf("runtime.g: %w", fetch.ErrNoDebugInfo)
		}
		if off, ok = memberOffset(&e, member); !ok {
			return fmt.Errorf("runtime.g has no %s: %w", member, fetch.ErrNoDebugInfo)
		}
		return nil
	})
	return off, err
}

// traceContext reads the thread's trace or span.
func traceContext(space *symbols.Space, name string) (v fetch.Variable, err error) {
	for _, m := range space.Modules() {
		if m.File == nil {
			continue
		}
		for _, s := range m.File.Lookup(contextVariable) {
			if s.Kind != symbols.KindTLS {
				continue
			}
			f := &frame{scope: At(space, symbols.Site{Module: m, Func: new(symbols.Func), Named: m.Name}), module: m}
			x := evaluator{f: f, stack: []sym{constant(uint64(s.Vaddr))}}
			if err := x.threadLocal(); err != nil {
				return v, fmt.Errorf("%s of %s: %w", contextVariable, m.Name, err)
			}
			at, err := x.pop()
			if err != nil {
				return v, err
			}
			return contextValue(at.load(8), name), nil
		}
	}
	return v, fmt.Errorf("no file of the process has a thread-local variable %s, by which a program publishes its traces (OpenTelemetry's thread context)", contextVariable)
}

// contextValue returns a part of the record at an address.
func contextValue(record sym, name string) (v fetch.Variable) {
	part := func(off int64) fetch.Chain {
		valid := record.step(fetch.Step{Op: fetch.StepWhen, Imm: contextValid, Size: 1, Imm2: 1})
		return valid.add(off).load(8).step(fetch.Step{Op: fetch.StepSwap}).whole()
	}
	v.Type = fetch.Type{Base: fetch.ID, Size: 8}
	if name == "$span_id" {
		v.Chain = part(contextSpan)
		return v
	}
	v.Type.Count = 2
	v.Parts = []fetch.Part{{Chain: part(contextTrace), Size: 8}, {Chain: part(contextTrace + 8), Off: 8, Size: 8}}
	return v
}

// memberOffset returns the offset of a member in a structure.
func memberOffset(e *debuginfo.Entry, name string) (int64, bool) {
	for c := range e.Children() {
		if c.Tag() == dwarf.TagMember && c.Name() == name {
			return c.Int(dwarf.AttrDataMemberLoc)
		}
	}
	return 0, false
}
