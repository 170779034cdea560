package plan

import (
	"bytes"
	"testing"

	"kprobe/probe/insn"
)

// check holds a patch against the rules, whatever its tactic.
func check(t testing.TB, f *Func, p *Patch) {
	t.Helper()
	bad := func(format string, args ...any) {
		t.Helper()
		t.Errorf("%#x, %v: "+format, append([]any{p.At, p.Tactic}, args...)...)
	}
	checkPacked(t, p)
	off := int(p.At - f.start)
	orig := func(at uint64, n int) []byte { return f.code[at-f.start:][:n] }
	if !bytes.Equal(p.Displaced, orig(p.At, len(p.Displaced))) {
		bad("displaces %x", p.Displaced)
	}
	if gives := len(p.Sites) == 0; (p.Why == "") != (!gives && (p.Tactic == Nop || p.Tactic == Single)) {
		bad("why %q", p.Why)
	}
	if p.Tactic == Refused {
		if len(p.Writes) != 0 {
			bad("writes %v", p.Writes)
		}
		return
	}
	// The displaced bytes are whole instructions, each known by its start.
	at := 0
	for _, s := range p.starts() {
		i, err := insn.Decode(p.Displaced[at:])
		if s != at || err != nil || (at > 0 || p.Tactic.Jump()) && i.Refusal() != "" {
			bad("instruction at %d, stated %d: %v", at, s, err)
			return
		}
		at += int(i.Len)
	}
	if at != len(p.Displaced) {
		bad("%d of %d displaced bytes are instructions", at, len(p.Displaced))
	}
	if p.Tactic.Jump() {
		m, err := insn.RelocateWindow(p.Displaced, p.At, p.Detour, insn.Options{})
		if err != nil {
			// How far an operand is decides too: what the plan knows as CopyLo.
			if p.CopyLo <= p.Detour && p.Detour <= p.CopyHi {
				bad("can't be moved: %v", err)
			}
		} else if p.Room >= IslandRoom && len(m.Code) > p.Room {
			bad("a copy of %d bytes", len(m.Code))
		}
	}
	// Execute the patched bytes at the site.
	mem := map[uint64]byte{}
	for _, w := range p.Writes {
		for k, b := range w.Bytes {
			mem[w.At+uint64(k)] = b
		}
	}
	if p.Island != nil {
		check(t, f, p.Island)
		for k := range p.Island.Writes[0].Bytes {
			if at := p.Island.At + uint64(k); at >= p.At && at < p.End() {
				bad("its island is in it")
			}
		}
	}
	read := func(at uint64) byte {
		for q := p.Island; q != nil; q = q.Island {
			for _, w := range q.Writes {
				if at-w.At < uint64(len(w.Bytes)) {
					return w.Bytes[at-w.At]
				}
			}
		}
		if b, ok := mem[at]; ok {
			return b
		}
		return f.code[at-f.start]
	}
	if !p.Tactic.Jump() {
		if len(p.Writes) != 1 || p.Writes[0].At != p.At || len(p.Writes[0].Bytes) != 1 || read(p.At) != 0xcc || p.Detour != 0 {
			bad("writes %v", p.Writes)
		}
		return
	}
	to, end := follow(read, p.At)
	if packed(p).GuardsStart() && read(p.At) == p.Guards[0].Byte {
		to, end = p.Detour, p.At+1
	}
	if to != p.Detour {
		bad("jumps to %#x, the detour is at %#x", to, p.Detour)
	}
	if p.Tactic != ShortJump && end > p.Lock {
		bad("ends at %#x, locks up to %#x", end, p.Lock)
	}
	for at := range mem {
		o := int(at - f.start)
		inJump := at >= p.At && at < p.Lock
		if !inJump && p.Tactic != ShortJump {
			bad("writes at %#x outside of its lock", at)
		}
		if o != off && f.target(o) && (p.Tactic != Bypass || f.start+uint64(o) != p.Sites[0]) {
			bad("writes under the branch target %#x", at)
		}
	}
	// Every old boundary that is written over traps.
	for _, s := range p.starts()[1:] {
		b, written := mem[p.At+uint64(s)]
		guarded := false
		for _, g := range p.Guards {
			guarded = guarded || g.At == p.At+uint64(s) && g.Byte == b
		}
		if written && (!guarded || !Traps().Has(b)) {
			bad("boundary %d holds %#x, guards %v", s, b, p.Guards)
		}
	}
	if p.Tactic == Bypass {
		checkBypass(t, f, p, p.Sites[0])
	}
	if len(p.Guards) != 0 && p.Tactic != Window && p.Tactic != TailPad && p.Tactic != ShortJump && p.Tactic != Bypass {
		bad("guards %v", p.Guards)
	}
	// Only windows touch more than the instruction itself.
	if p.Tactic == Pun || p.Tactic == Single || p.Tactic == Nop {
		if len(p.starts()) != 1 || int(p.Writes[0].At-p.At)+len(p.Writes[0].Bytes) > len(p.Displaced) {
			bad("writes %v over %d bytes", p.Writes, len(p.Displaced))
		}
	}
}

// checkBypass: every way to the site goes through the copies of a patch and its islands.
func checkBypass(t testing.TB, f *Func, p *Patch, site uint64) {
	t.Helper()
	displaced := func(at uint64) bool {
		for q := p; q != nil; q = q.Island {
			if q.displaces(at) {
				return true
			}
		}
		return false
	}
	for k, i := range f.insts {
		at := f.start + uint64(i.off)
		in, code := f.whole(i)
		to, ok := in.Target(at, code)
		if (ok && to == site || at+uint64(i.Len) == site && !i.Is(insn.Stops) && f.reaches(k)) && !displaced(at) {
			t.Errorf("the instruction at %#x leads to the guard at %#x", at, site)
		}
	}
}

// follow takes the jump at an address, prefixes and short jumps included. It
// returns where it leads and where the long jump ends.
func follow(read func(uint64) byte, at uint64) (to, end uint64) {
	for range 4 {
		var b [insn.MaxLen]byte
		n := 0
		for ; n < 10; n++ {
			b[n] = read(at + uint64(n))
			if i, err := insn.Decode(b[:n+1]); err == nil {
				to, ok := i.Target(at, b[:])
				if !ok || !i.Is(insn.Jmp) {
					return 0, 0
				}
				if i.ImmLen == 4 {
					return to, at + uint64(i.Len)
				}
				at = to
				break
			}
		}
		if n == 10 {
			break
		}
	}
	return 0, 0
}
