package detour

import (
	"slices"

	"kprobe/fetch"
)

// layout is what one program keeps in temporaries between its two passes. The
// early pass, before room is reserved, computes what the filter looks at and
// how long texts are; the late one writes the record.
type layout struct {
	texts bool // the record's size depends on texts
	tid   bool // the thread's number is needed
	size  int  // bytes of temporaries

	total int // offset of the temporary with the record's size of data
	state int // offset of the temporary with the state word, if it is needed
	only  int // offset of the temporaries of the only text of a record; -1: none is
	area  int // offset of the temporary that keeps the CPU's area
	stack int // offset of the temporaries of a copied stack
	comm  int // offset of 16 bytes for the thread's name
	name  int // offset of its text's temporaries, for the filter
	named bool
	bits  int // offset of the fault bits seen early, -1: none
	// early has, for each argument that is computed early, the offset of its
	// temporaries: a scalar's is the slot's value; a text's are address and word,
	// for each element.
	early map[int]int
	// now is the offset of two words if the program needs nanoseconds at the hit:
	// the time, and what reading the clock needs. -1: it doesn't.
	now   int
	evict int // offset of the temporaries for making room
	work  int // offset of the temporary of triggers
	where int // offset of the one with the area in which the hit is recorded, 0: in none; -1: no trigger asks
	want  int // offset of the one with the bytes of the stack, where only some records have it
	// times are offsets in the data that are filled with the record's rdtsc.
	times []int
}

// planProgram lays out a program's temporaries. The error says what a detour can't do.
func planProgram(pr *Probe, p *Params) (layout, error) {
	prog := pr.Program
	l := layout{early: map[int]int{}, bits: -1, now: -1, only: -1, where: -1, tid: !pr.CountOnly}
	if prog.Fixed < 0 || prog.Fixed > fetch.MaxData {
		return l, unsupported("a record of %d bytes", prog.Fixed)
	}
	filtered := map[int]bool{}
	value := false // the thread's number is a value of the record
	named := false
	for q := range prog.Preds() {
		if err := checkPred(prog, q, p); err != nil {
			return l, err
		}
		if q.Field == fetch.FieldTID {
			value = true
		}
		if q.Field == fetch.FieldArg {
			filtered[q.Arg] = true
		}
		named = named || q.Field == fetch.FieldComm
	}
	if why := prog.NeedsTracer(); why != "" {
		return l, unsupported("%s", why)
	}
	if err := p.noReads(prog); err != nil {
		return l, err
	}
	room := func(n int) int {
		off := l.size
		l.size += n
		return off
	}
	if named {
		l.texts = true
		l.name, l.named = room(16), true
	}
	if NeedsClock(prog) {
		if p.Clock == 0 {
			return l, unsupported("the time at the hit is not known")
		}
		l.now = room(16)
	}
	faults, comm, large := false, named, false
	kept, last := 0, -1 // number of texts in the record, and the last one's argument
	for i := range prog.Args {
		a := &prog.Args[i]
		if err := checkArg(a, p); err != nil {
			return l, err
		}
		value = value || a.Source == fetch.SourceTID
		if n := texts(a); n > 0 {
			if !pr.CountOnly || filtered[i] {
				l.texts = true
				if isPath(a) {
					l.early[i] = room(pathTemp)
					large = true
				} else {
					l.early[i] = room(16 * n)
					last = l.early[i]
				}
				kept += n
				comm = comm || isComm(a)
			}
		} else if filtered[i] && a.Store == fetch.StoreParts {
			return l, unsupported("the filter looks at a value in several places")
		} else if filtered[i] && a.Type.IsArray() {
			l.early[i] = room(arrayText + a.Size + 8)
			l.texts = true // because it needs the registers of texts
		} else if filtered[i] || p.Careful && !pr.CountOnly && a.Store != fetch.StoreParts && !a.Type.IsArray() && reads(prog, a) {
			l.early[i] = room(8)
		}
		if _, ok := l.early[i]; ok && a.FaultBit >= 0 {
			faults = true
		}
		large = large || a.Type.IsArray() && int(a.Type.Count)*int(a.Type.Size) >= unrolled
		if a.Source == fetch.SourceTime && l.now < 0 {
			l.times = append(l.times, a.Slot)
		}
	}
	if value && p.Nested {
		return l, unsupported("the thread's number is another one in the process's pid namespace")
	}
	l.tid = l.tid || value
	l.texts = l.texts || sometimes(prog) // records have different sizes
	if l.texts {
		l.total, l.state = room(8), room(8)
	}
	if kept == 1 && !mayOverflow(prog) && !sometimes(prog) {
		l.only = last
	}
	if large || prog.Stack != nil {
		l.area = room(8)
	}
	if sometimes(prog) {
		l.want = room(8)
	}
	if prog.Stack != nil {
		l.stack = room(stackTemps)
	}
	if comm {
		l.comm = room(16)
	}
	if faults {
		l.bits = room(prog.Bitmap)
	}
	if pr.Control != nil {
		l.work = room(8)
		if slices.ContainsFunc(pr.Control.Triggers, func(t Trigger) bool { return t.Action == fetch.Snapshot }) {
			l.where = room(8)
		}
	}
	if p.Overwrite && !pr.CountOnly {
		l.evict = room(evictTemp)
	}
	return l, nil
}

// HasTexts reports whether a program's detours measure or copy texts.
func HasTexts(prog *fetch.Program) bool {
	for i := range prog.Args {
		if texts(&prog.Args[i]) > 0 {
			return true
		}
	}
	for q := range prog.Preds() {
		if q.Operand == fetch.OperandText {
			return true
		}
	}
	return false
}

// texts is the number of texts of an argument, 0 for those that have none.
func texts(a *fetch.ArgProgram) int {
	switch a.Store {
	case fetch.StoreString, fetch.StoreText, fetch.StoreCounted, fetch.StorePath:
		return 1
	case fetch.StoreStrings:
		return max(int(a.Type.Count), 1)
	}
	return 0
}

// checkArg returns an error if a detour can't record an argument.
func checkArg(a *fetch.ArgProgram, params *Params) error {
	switch {
	case isPath(a) && params.NoSyscall:
		return unsupported("a path takes a system call")
	case isPath(a) && params.NoProc:
		return unsupported("the program's /proc can't tell paths")
	case a.Source == fetch.SourceComm && (params.NoSyscall || !isComm(a)):
		return unsupported("the thread's name takes a system call")
	case a.Source == fetch.SourceStack && !fits(a.Off+MaxStack+redZone):
		return unsupported("word of the stack out of reach")
	}
	for i := range a.Parts {
		p := &a.Parts[i]
		if s := int(p.Size); s == 0 || s > 8 || s&(s-1) != 0 || p.Off < 0 || p.Off+s > a.Size || p.Source == fetch.SourceComm || p.Source == fetch.SourceText {
			return unsupported("a part of %d bytes at %d of %d", p.Size, p.Off, a.Size)
		}
		one := fetch.ArgProgram{Chain: p.Chain, Store: fetch.StoreValue, Type: fetch.DefaultType()}
		if err := checkArg(&one, params); err != nil {
			return err
		}
	}
	if a.Store == fetch.StoreCounted {
		if a.Len == nil {
			return unsupported("a text of no length")
		}
		if a.Unit < 0 || a.Max < 0 || a.Unit*a.Max > fetch.MaxString {
			return unsupported("a copy of %d times %d bytes", a.Max, a.Unit)
		}
		n := fetch.ArgProgram{Chain: *a.Len, Store: fetch.StoreValue, Type: fetch.DefaultType()}
		if a.Len.Source == fetch.SourceComm {
			return unsupported("a length from source %d", a.Len.Source)
		}
		if err := checkArg(&n, params); err != nil && !(hasLabel(&n.Chain) && checkSteps(&n.Chain, params) == nil) {
			return err
		}
	} else if hasLabel(&a.Chain) {
		return unsupported("a label that is no text")
	}
	if a.Source == fetch.SourceReg {
		return checkRegister(a.Reg, params)
	}
	return checkSteps(&a.Chain, params)
}

// checkPred returns an error if a detour can't evaluate a predicate.
func checkPred(prog *fetch.Program, q *fetch.Pred, p *Params) error {
	switch {
	case q.Field == fetch.FieldComm && (p.NoSyscall || q.Operand != fetch.OperandText):
		return unsupported("the thread's name takes a system call")
	case q.Field != fetch.FieldArg:
		return nil
	case q.Arg < 0 || q.Arg >= len(prog.Args):
		return unsupported("filter argument %d", q.Arg)
	}
	a := &prog.Args[q.Arg]
	switch {
	case a.Type.IsArray() && a.Store == fetch.StoreMem && a.Type.Base == fetch.Char && a.Type.Size == 1 && q.Operand == fetch.OperandText:
		return nil
	case a.Type.IsArray():
		return unsupported("a filter looks at an array")
	case a.Store == fetch.StoreSymbol:
		return unsupported("a filter compares a symbol's text")
	case (texts(a) > 0) != (q.Operand == fetch.OperandText):
		return unsupported("a filter compares text with numbers")
	case isPath(a):
		return checkPath(q)
	}
	return nil
}

func fits(v int64) bool { return v == int64(int32(v)) }
