package engine

import (
	"kprobe/probe/insn"
	"kprobe/probe/memory"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// breakpoint is the encoding of int3.
const breakpoint = memory.Int3

// Site is an address with a breakpoint, and everything that the breakpoint serves. It corresponds
// to the kernel's struct kprobe and its aggregate of probes at the same address. Its states, in
// order:
//
//	laid      the copy is written; the text is as before
//	armed     the journal and the fallback handler's table have an entry, and the int3 is in
//	          the text
//	retired   the instruction's first byte is back in the text; the copy stays while a thread may
//	          be in it
type Site struct {
	Addr   symbols.Addr
	name   string       // for messages
	code   []byte       // the file's bytes at Addr: the instruction's, or more
	Length int          // of the instruction, in bytes
	moved  insn.Moved   // the relocated instruction
	slot   symbols.Addr // where the copy is
	Armed  bool         // the int3 is in the text, or couldn't be taken out of it
	met    bool         // the int3 was in the text once, so threads may be in the copy
	entry  int          // number of the journal entry; -1: none
	hangings
}

// hangings is what a site serves.
type hangings struct {
	probes  []*Placed // p probes, in order of definition
	returns []*Placed // r probes whose function starts here
	exits   []*Placed // r probes whose function is left here (exit-site probing)
	jcc     byte      // the condition | 0x80 if an exit is a conditional jump, which leaves only if taken; else 0
	hooks   []*hook   // kprobe's own
	// lands says that calls return here, so that arriving threads may end calls.
	lands bool
	// calls says that the instruction is a call to whose return address another site lands.
	calls bool
	// leaves are the return probes whose function is left here (returnwatch.go). outwards says
	// that it is left by a jump to another function.
	leaves   []*Placed
	outwards bool
	// Redirect is the address of the detour of an exit whose jump had to give way. Threads
	// continue there instead of at the copy. 0: none.
	Redirect symbols.Addr
}

// next is where a thread continues after the breakpoint: the redirect's detour, or the copy.
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

// idle reports whether the site serves nothing any more.
func (s *Site) idle() bool {
	return len(s.probes) == 0 && len(s.returns) == 0 && len(s.exits) == 0 && !s.own()
}

// own reports whether kprobe itself needs the site: for a hook, to follow calls, or as a redirect
// into an exit's detour.
func (s *Site) own() bool {
	return len(s.hooks) > 0 || s.lands || s.calls || len(s.leaves) > 0 || s.Redirect != 0
}
