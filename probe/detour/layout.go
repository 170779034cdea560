package detour

import (
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
	state int // offset of the temporary with the state word
	area  int // offset of the temporary that keeps the CPU's area
	stack int // offset of the temporary with the bytes of a copied stack
	comm  int // offset of 16 bytes for the thread's name
	name  int // offset of its text's temporaries, for the filter
	named bool
	bits  int // offset of the fault bits seen early, -1: none
	// early has, for each argument that is computed early, the offset of its
	// temporaries: a scalar's is the slot's value; a text's are address and word,
	// for each element.
	early map[int]int
	// times are offsets in the data that are filled with the record's rdtsc.
	times []int
}

// planProgram lays a program's temporaries out, or says what it can't do.
func planProgram(pr *Probe, p *Params) (layout, error) {
	prog := pr.Program
	l := layout{early: map[int]int{}, bits: -1, tid: !pr.CountOnly}
	if prog.Fixed < 0 || prog.Fixed > fetch.MaxData {
		return l, unsupported("a record of %d bytes", prog.Fixed)
	}
	filtered := map[int]bool{}
	named := false
	if prog.Filter != nil {
		for i := range prog.Filter.Preds {
			q := &prog.Filter.Preds[i]
			if err := checkPred(prog, q, p); err != nil {
				return l, err
			}
			l.tid = l.tid || q.Field == fetch.FieldTID
			if q.Field == fetch.FieldArg {
				filtered[q.Arg] = true
			}
			named = named || q.Field == fetch.FieldComm
		}
	}
	if len(prog.Fields()) == len(prog.Args) { // else it isn't Compile's
		if why := prog.NeedsTracer(); why != "" {
			return l, unsupported("%s", why)
		}
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
	faults, comm, large := false, named, false
	for i := range prog.Args {
		a := &prog.Args[i]
		if err := checkArg(a, p); err != nil {
			return l, err
		}
		l.tid = l.tid || a.Source == fetch.SourceTID
		if n := texts(a); n > 0 {
			if !pr.CountOnly || filtered[i] {
				l.texts = true
				l.early[i] = room(16 * n)
				comm = comm || isComm(a)
			}
		} else if filtered[i] {
			l.early[i] = room(8)
		}
		if _, ok := l.early[i]; ok && a.FaultBit >= 0 {
			faults = true
		}
		large = large || a.Type.IsArray() && int(a.Type.Count)*int(a.Type.Size) >= unrolled
		if a.Source == fetch.SourceTime {
			l.times = append(l.times, a.Slot)
		}
	}
	if l.texts {
		l.total, l.state = room(8), room(8)
	}
	if large || prog.Stack != nil {
		l.area = room(8)
	}
	if prog.Stack != nil {
		l.stack = room(8)
	}
	if comm {
		l.comm = room(16)
	}
	if faults {
		l.bits = room(prog.Bitmap)
	}
	return l, nil
}

// texts is the number of texts of an argument, 0 for those that have none.
func texts(a *fetch.ArgProgram) int {
	switch a.Store {
	case fetch.StoreString, fetch.StoreText, fetch.StoreCounted:
		return 1
	case fetch.StoreStrings:
		return max(int(a.Type.Count), 1)
	}
	return 0
}

// checkArg says why an argument can't be had in the target.
func checkArg(a *fetch.ArgProgram, p *Params) error {
	switch {
	case a.Store == fetch.StoreSymbol || a.Store == fetch.StorePath:
		return unsupported("a name is looked up at the hit")
	case a.Source == fetch.SourceComm && (p.NoSyscall || !isComm(a)):
		return unsupported("the thread's name takes a system call")
	case a.Source == fetch.SourceTime && (a.Store != fetch.StoreValue || len(a.Loads) > 0 || a.Type.Size != 8 || a.Type.BitWidth != 0):
		return unsupported("a part of the time")
	case a.Source == fetch.SourceReg && (a.Reg == fetch.RegFSBase || a.Reg == fetch.RegGSBase) && !p.FSGSBase:
		return unsupported("the kernel doesn't let programs read %s", a.Reg)
	case a.Source == fetch.SourceStack && !fits(a.Off+MaxStack+redZone):
		return unsupported("word of the stack out of reach")
	}
	if a.Store == fetch.StoreCounted {
		if a.Len == nil {
			return unsupported("a text of no length")
		}
		n := fetch.ArgProgram{Chain: *a.Len, Store: fetch.StoreValue, Type: fetch.DefaultType()}
		if a.Len.Source == fetch.SourceTime || a.Len.Source == fetch.SourceComm {
			return unsupported("a length from source %d", a.Len.Source)
		}
		if err := checkArg(&n, p); err != nil {
			return err
		}
	}
	return checkSteps(&a.Chain)
}

// checkPred says why a predicate can't be decided in the target.
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
	case isTime(prog, a):
		return unsupported("a filter compares the time")
	case a.Type.IsArray():
		return unsupported("a filter looks at an array")
	case (texts(a) > 0) != (q.Operand == fetch.OperandText):
		return unsupported("a filter compares text with numbers")
	}
	return nil
}

// isTime reports whether an argument is the time, or the entry's.
func isTime(prog *fetch.Program, a *fetch.ArgProgram) bool {
	c := &a.Chain
	if c.Source == fetch.SourceEntry && c.N >= 0 && c.N < len(prog.Entry) && len(c.Loads) == 0 {
		c = &prog.Entry[c.N].Chain
	}
	return c.Source == fetch.SourceTime && len(c.Loads) == 0
}

func fits(v int64) bool { return v == int64(int32(v)) }

// TimeSlots are the offsets, in a program's argument data, of values that a
// detour leaves as the time stamp counter and Eval gives in nanoseconds: $time,
// and an entry's time. Who reads the record converts them.
func TimeSlots(prog *fetch.Program) []int {
	var slots []int
	for i := range prog.Args {
		if a := &prog.Args[i]; a.Store == fetch.StoreValue && isTime(prog, a) {
			slots = append(slots, a.Slot)
		}
	}
	return slots
}
