// Package exits finds the instructions by which functions are left, for probes of their
// returns: the function's own returns, where its jumps to other functions lead, and the returns
// of those. It writes nothing. From the process it reads only the pointers through which jumps
// go.
package exits

import (
	"errors"
	"fmt"
	"slices"

	"kprobe/fetch"
	"kprobe/probe/assess"
	"kprobe/probe/detour"
	"kprobe/probe/insn"
	"kprobe/probe/survey"
	"kprobe/symbols"
)

const (
	// Most is how many return instructions of a function and of those that it jumps
	// to there may be, mostParts of how many functions and parts.
	Most      = 128
	mostParts = 48
	// wideMost and wideParts are for a batch whose exits are shared (Finder.Wide).
	wideMost  = 1024
	wideParts = 256
	// mostOutwards is by how many returns and jumps a function may be left.
	mostOutwards = 64
)

// Finder finds exits, in one state of the process: what it has found of an instruction,
// and of where a jump leads, it knows for the next function that comes there. Hundreds of
// functions may end in a jump to the same one.
type Finder struct {
	// Wide says that many functions are probed whose exits are the same: each of them may
	// have more.
	Wide    bool
	space   *symbols.Space
	memory  symbols.Memory
	rule    *assess.Assessor
	leaving func(symbols.Site) (*assess.Function, error)
	proven  map[uint64]*assess.Place
	ends    map[symbols.Addr][]jumpEnd // by where direct jumps lead
	parts   []part                     // room for those of the function that Of looks at
}

// New makes a finder. rule says whether an instruction can be probed; leaving gives the
// function that contains a place, which knows how it is left: its instructions may be gone.
func New(space *symbols.Space, mem symbols.Memory, rule *assess.Assessor, leaving func(symbols.Site) (*assess.Function, error)) *Finder {
	return &Finder{space: space, memory: mem, rule: rule, leaving: leaving, proven: map[uint64]*assess.Place{}, ends: map[symbols.Addr][]jumpEnd{}}
}

// pushed says why calls of a function are not followed by its exits.
const pushed = "it returns to an address that it has put on the stack"

// Exit is an instruction by which a function is left, or that tells calls which are left
// from others.
type Exit struct {
	*assess.Place
	Pop         uint16         // what a return takes off the stack besides its address
	Jumps       bool           // it leads to another function
	Conditional bool           // if a condition is met
	Passing     detour.Passing // what it tells of a call that isn't left by it
	Open        *fetch.Chain   // where it leads, if only the program knows; nil: that is known
}

// Exits are those of one function.
type Exits struct {
	List []Exit
	Open string // which jump only the program knows the end of, and why; "": there is none
	// Plain says that the function's own code has its own returns, and direct jumps to the
	// starts of functions that can be called, none of which jumps back to it: whatever
	// returns or jumps there ends one of its calls, or passes it on.
	Plain bool
	// Back says that a function that it jumps to may jump back to it. Then one return may end several of its calls.
	Back bool
	// Outer says that a return of its own may end outer calls instead.
	Outer bool
}

// Own lists each instruction by which a Go function is left, which is at w. A jump into
// another function leaves it too.
//
// It is a *survey.RefusedError if one can't be probed, or returns to a pushed address, or there is none.
func (f *Finder) Own(fn *assess.Function, w symbols.Site) (list []Exit, err error) {
	for _, x := range fn.Sweep.Exits() {
		if x.Kind == insn.ExitPushed {
			return nil, &survey.RefusedError{Addr: symbols.Addr(x.Addr), Place: w.Name(), Rule: pushed}
		}
		if x.Kind != insn.ExitRet && x.Kind != insn.ExitTail && x.Kind != insn.ExitCondTail {
			continue
		}
		at := w
		at.Addr = symbols.Addr(x.Addr)
		at.Offset = x.Addr - uint64(fn.Start)
		at.Vaddr = fn.Fn.Start + symbols.Vaddr(at.Offset)
		if w.Named != "" {
			at.Named = symbols.OffsetName(w.Named, at.Offset)
		}
		found, err := f.rule.Instruction(at)
		if err != nil {
			return nil, err
		}
		list = append(list, Exit{Place: &found, Jumps: x.Kind != insn.ExitRet, Conditional: x.Kind == insn.ExitCondTail})
	}
	if len(list) == 0 {
		return nil, &survey.RefusedError{Addr: w.Addr, Place: w.Name(), Rule: "the function never returns"}
	}
	return list, nil
}

// Outwards lists the returns of the function at w, each of which must take pop bytes off
// the stack, and its jumps to other functions. Parts of it that are only jumped to
// belong to it.
func (f *Finder) Outwards(w symbols.Site, pop uint64) (list []Exit, err error) {
	fn, err := f.leaving(w)
	if err != nil {
		return nil, err
	}
	parts := []part{{Function: fn, site: w}}
	for i := 0; i < len(parts); i++ { // grows
		from := parts[i]
		for _, x := range from.Leaving().Exits {
			if !x.Kind.Returns() {
				continue
			}
			if x.Kind == insn.ExitPushed {
				return nil, errors.New(pushed)
			}
			if x.Kind != insn.ExitRet {
				list, err := f.jumpsTo(from, x)
				if errors.Is(err, errNowhere) {
					continue
				}
				if x.Kind == insn.ExitFall {
					return nil, errors.New("it runs into what follows")
				}
				if to := onlyPart(list); err == nil && to.Function != nil && (to.Start == fn.Start || f.jumpedTo(to)) {
					if !contains(parts, to.Start) {
						parts = append(parts, to)
					}
					continue
				}
			} else if x.Indirect || uint64(x.Pop) != pop {
				return nil, errors.New("its returns differ")
			}
			found, err := f.rule.Instruction(from.at(x.Addr))
			if err != nil {
				return nil, err
			}
			list = append(list, Exit{Place: &found, Pop: x.Pop, Jumps: x.Kind != insn.ExitRet, Conditional: x.Kind == insn.ExitCondTail})
		}
		if len(list) > mostOutwards || len(parts) > mostParts {
			return nil, errors.New("it can be left in too many ways")
		}
	}
	return list, nil
}

// Of finds the return instructions by which the function at w may return, with those
// that tell its calls from others': none of one that never does. open says that a
// jump of which only the program knows where it leads can be asked when it is taken
// (detour.BuildOnward). The error says why they are not all known.
func (f *Finder) Of(w symbols.Site, open bool) (*Exits, error) {
	most, partsAtMost := Most, mostParts
	if f.Wide {
		most, partsAtMost = wideMost, wideParts
	}
	l := &Exits{Plain: true}
	fn, err := f.leaving(w)
	if err != nil {
		return nil, err
	}
	parts := append(f.parts[:0], part{Function: fn, site: w, own: true})
	defer func() {
		clear(parts)
		f.parts = parts
	}()
	for i := 0; i < len(parts); i++ { // grows
		from := parts[i]
		for _, x := range from.Leaving().Exits {
			switch {
			case !x.Kind.Returns():
			case x.Kind == insn.ExitPushed:
				return nil, fmt.Errorf("at %s %s", from.at(x.Addr).Name(), pushed)
			case x.Kind == insn.ExitRet:
				if err := l.add(f, from, x); err != nil {
					return nil, err
				}
				l.Outer = l.Outer || x.Outer && from.own
				l.Plain = l.Plain && (i == 0 || !from.own)
			default:
				ends := f.endsOf(from, x)
				if err := ends[0].err; errors.Is(err, errNowhere) || open && l.opens(f, from, x, err) {
					continue
				} else if err != nil {
					does := "jumps"
					if x.Kind == insn.ExitFall {
						does = "runs on"
					}
					return nil, fmt.Errorf("at %s+%#x it %s %w", from.Fn.Symbol.Name, x.Addr-uint64(from.Start), does, err)
				}
				for _, to := range ends {
					if err := l.passes(f, from, x, to, parts); err != nil {
						return nil, err
					}
					l.Plain = l.Plain && plainly(parts, i, to)
					l.Back = l.Back || !from.own && to.Start == parts[0].Start
					if !contains(parts, to.Start) {
						to.own = from.own && !to.called
						parts = append(parts, to.part)
					}
				}
			}
		}
		if len(l.List) > most || len(parts) > partsAtMost {
			return nil, errors.New("it jumps to too many functions")
		}
	}
	if len(l.List) == 0 && slices.ContainsFunc(parts, func(p part) bool { return !p.Leaving().Closed }) {
		return nil, errors.New("it has no exit")
	}
	return l, nil // without any it never returns
}

// plainly reports whether a jump of the i-th part to another leaves it so that Exits.Plain
// holds.
func plainly(parts []part, i int, to jumpEnd) bool {
	from, back := parts[i], to.Start == parts[0].Start
	switch {
	case !from.own:
		return !back
	case back:
		return to.to != to.Start // goes on in its midst
	case to.called:
		return i == 0 && to.to == to.Start
	}
	// A part of its own: others that were found before have it in common.
	return !slices.ContainsFunc(parts, func(p part) bool { return p.Start == to.Start && !p.own })
}

// prove assesses an instruction of a part. What others than its own function come to is kept for them.
func (f *Finder) prove(from part, addr uint64) (*assess.Place, error) {
	if x := f.proven[addr]; x != nil {
		return x, nil
	}
	x, err := f.rule.Start(from.at(addr)) // the sweep has it
	if err != nil {
		return nil, err
	}
	if !from.own {
		f.proven[addr] = &x
	}
	return &x, nil
}

// add adds a return instruction.
func (l *Exits) add(f *Finder, from part, x insn.Exit) error {
	if x.Indirect {
		return fmt.Errorf("%s is a far return", from.at(x.Addr).Name())
	}
	at, err := f.prove(from, x.Addr)
	if err != nil {
		return err
	}
	l.List = append(l.List, Exit{Place: at, Pop: x.Pop})
	return nil
}

// passes adds a jump to a function that may be called, too, unless it is there already,
// and that one's entry, unless it is a part already (detour.Passing). The entry's detour is
// behind an endbr64. A jump back to the function itself is a further call, if it comes from another one.
func (l *Exits) passes(f *Finder, from part, x insn.Exit, to jumpEnd, parts []part) error {
	if !to.called || to.Start == parts[0].Start && from.own {
		return nil
	}
	add := func(in part, addr uint64, way detour.Passing, conditional bool) error {
		at, err := f.prove(in, addr)
		if err != nil {
			return err
		}
		switch jump := at.Inst(); {
		case conditional && jump.Opcode&^0xf != 0x70 && jump.Opcode&^0xf != 0x80:
			return fmt.Errorf("%s jumps by a condition that is no flag's", at.Site.Name())
		case way == detour.PassesOn && x.Kind == insn.ExitFall && jump.Flags.Any(insn.RelBranch|insn.WritesSP):
			return fmt.Errorf("behind %s it runs on to %s", at.Site.Name(), to.site.Name())
		}
		l.List = append(l.List, Exit{Place: at, Passing: way, Conditional: conditional})
		return nil
	}
	start, err := f.prove(to.part, uint64(to.Start))
	if err != nil {
		return err
	}
	entry := to.Start
	if in := start.Inst(); in.Is(insn.CET) {
		entry += symbols.Addr(in.Len)
	}
	switch i := slices.IndexFunc(l.List, func(e Exit) bool { return e.Passing == detour.PassesOn && e.Site.Addr == symbols.Addr(x.Addr) }); {
	case to.to != to.Start && to.to < entry:
		return fmt.Errorf("a jump leads to %s, behind its start", to.site.Name())
	case to.to > entry: // not by the code at its entry
	case i < 0:
		if err := add(from, x.Addr, detour.PassesOn, x.Kind == insn.ExitCondTail); err != nil {
			return err
		}
	case x.Kind == insn.ExitFall:
		l.List[i].Conditional = false // the call passes on, whether the jump is taken or not
	}
	if contains(parts, to.Start) {
		return nil
	}
	if to.Leaving().StartsOver {
		return fmt.Errorf("%s jumps to its own entry", to.site.Name())
	}
	return add(to.part, uint64(to.Start), detour.Arrives, false)
}

// opens adds a jump of which only the program knows where it leads, if that can be
// asked; err is why it isn't known.
func (l *Exits) opens(f *Finder, from part, x insn.Exit, err error) bool {
	var open *openJumpError
	if !errors.As(err, &open) || x.Kind != insn.ExitTail {
		return false
	}
	at, perr := f.prove(from, x.Addr)
	if perr != nil {
		return false
	}
	to := open.chain(at.Inst(), at.Code(), x.Addr)
	if to == nil {
		return false
	}
	if l.Open == "" {
		l.Open = fmt.Sprintf("at %s it jumps %v", at.Site.Name(), err)
	}
	l.List = append(l.List, Exit{Place: at, Passing: detour.PassesOn, Open: to})
	l.Plain = false
	return true
}
