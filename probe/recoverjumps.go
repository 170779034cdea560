package probe

import (
	"bytes"
	"errors"

	"kprobe/probe/plan"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// jmpRel8 is the opcode of a short jump (Intel SDM vol. 2, JMP).
const jmpRel8 = 0xeb

// leaveLongJumps has threads that took a short jump, and no more, go back to
// where it was: once the text is restored no instruction starts at the long jump
// that they stand at. Nothing but their instruction pointer has changed since.
func (o *leftover) leaveLongJumps(stopped []*tracee.Thread) error {
	back := map[symbols.Addr]symbols.Addr{}
	for _, l := range o.sites {
		if l.Tactic != uint16(plan.ShortJump) || !bytes.HasPrefix(l.After, []byte{jmpRel8}) {
			continue // or it is the entry of the long jump
		}
		site := symbols.Addr(l.Addr)
		var short [2]byte
		if _, err := o.p.ReadMemory(short[:], site); err != nil || !bytes.HasPrefix(short[:], l.After) {
			continue // its file was unmapped, or it isn't in the text
		}
		back[site+symbols.Addr(len(short))+symbols.Addr(int8(short[1]))] = site
	}
	var errs []error
	for _, t := range stopped {
		regs, err := t.Regs()
		if err != nil || t.AtTrap() {
			continue // gone, or at a breakpoint right before the long jump
		}
		if site, ok := back[symbols.Addr(regs.Rip)]; ok {
			regs.Rip = uint64(site)
			if err := t.SetRegs(regs); err != nil && !errors.Is(err, tracee.ErrGone) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}
