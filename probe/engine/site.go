package engine

import (
	"kprobe/probe/insn"
	"kprobe/probe/memory"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// breakpoint is the encoding of int3.
const breakpoint = memory.Int3

// maxInsn is the length of the longest instruction (Intel SDM vol. 2, 2.3.11).
const maxInsn = 15

// Site is one patched address of a target with all that hangs on it: the
// kernel's struct kprobe and its aggregate of colocated probes in one.
//
// States, in order:
//
//	planned   the copy is known, nothing is written
//	armed     copy, journal and fallback handler's table are written, then the int3
//	retired   the instruction's first byte is back; the copy stays while a
//	          thread may be in it
type Site struct {
	Addr   symbols.Addr
	name   string // for messages
	code   []byte // original bytes, from the file, at least the instruction's
	Length int    // of the instruction
	moved  insn.Moved
	slot   symbols.Addr // where the copy lies
	Armed  bool
	met    bool // its int3 was in the text: threads may be in the copy
	entry  int  // number in the journal
	hangings
}

// hangings is what a site is for.
type hangings struct {
	probes  []*Placed // p probes, in order of definition
	returns []*Placed // r probes whose function starts here
	exits   []*Placed // r probes whose function is left here (exit-site probing)
	jcc     byte      // of an exit by a conditional jump, its condition | 0x80: only a taken one leaves
	hooks   []*hook   // kprobe's own
	// lands is set when calls return here: r probes' instances are looked up.
	lands bool
	// calls is set when calls are made here that return where another site lands.
	calls bool
	// leaves are the return probes whose function is left here (returnwatch.go),
	// outwards: by a jump to another.
	leaves   []*Placed
	outwards bool
	// redirect, if not 0, is the detour of an exit whose jump had to give way:
	// threads go on there, instead of at the copy.
	Redirect symbols.Addr
}

// next is where a thread goes on behind the breakpoint.
func (s *Site) next() symbols.Addr {
	if s.Redirect != 0 {
		return s.Redirect
	}
	return s.slot
}

// hook is kprobe's own use of a breakpoint.
type hook struct {
	at  symbols.Addr
	run func(t *tracee.Thread)
}

// idle reports whether nothing hangs on the site any more.
func (s *Site) idle() bool {
	return len(s.probes) == 0 && len(s.returns) == 0 && len(s.exits) == 0 && !s.own()
}

// own reports whether kprobe itself needs the site, or it leads into an exit's detour.
func (s *Site) own() bool {
	return len(s.hooks) > 0 || s.lands || s.calls || len(s.leaves) > 0 || s.Redirect != 0
}
