package plan

import (
	"fmt"
	"math"
	"strings"
	"unique"

	"kprobe/probe/insn"
)

// try is the planning of one site.
type try struct {
	f     *Func
	reach Reach
	at    int // offset of the first byte that may change
	k     int // its instruction
	room  int
	// limit is the first offset that must not be locked: the next site's, or that of bytes
	// which an earlier patch needs. Windows may displace sites.
	limit int
	hard  int // like limit, for windows too
	// low is the lowest offset that may be changed: earlier patches end there.
	low int
	// used are bytes that other patches need: of earlier plans, of earlier patches in this
	// one, and of this patch's jumps elsewhere.
	used  *[]pad
	sites []pad  // instructions that are probed, in order
	rest  []Site // from the one that is planned on
	why   []string
	// done are the patches before this one. tied says which of them become islands of it.
	done []*Patch
	tied []int
	// led is the offset of an instruction to which no branch will lead any more; 0: there is
	// none.
	led int
	// punsLate says that puns are tried after windows that start before the site.
	punsLate bool
}

func (t *try) fail(format string, args ...any) *Patch {
	t.why = append(t.why, fmt.Sprintf(format, args...))
	return nil
}

// reasons is all of why. It is often the same for thousands of patches, so these share it.
func (t *try) reasons() string { return unique.Make(strings.Join(t.why, "; ")).Value() }

// best tries the tactics in order and takes the first that works.
func (t *try) best() *Patch {
	rungs := []func() *Patch{t.single, t.window, t.pun, t.tail, t.back, t.short, t.evict, t.chain, t.bypass}
	switch {
	case t.punsLate:
		rungs = []func() *Patch{t.single, t.window, t.tail, t.back, t.pun, t.short, t.evict, t.chain, t.bypass}
	case t.f.indirect && t.at > 0:
		// Nothing computes an address near a function's start; elsewhere an
		// unknown jump table may lead into a window again and again.
		rungs = []func() *Patch{t.single, t.pun, t.window, t.tail, t.back, t.short, t.evict, t.chain, t.bypass}
	}
	for _, rung := range rungs {
		if p := rung(); p != nil {
			if p.Tactic > Single {
				p.Why = t.reasons()
			}
			return p
		}
	}
	i := t.f.insts[t.k]
	p := t.patch(Breakpoint, i.end(), 1)
	p.Writes = []Write{{p.At, []byte{0xcc}}}
	p.Why = t.reasons()
	return p
}

// patch is a Patch that displaces the bytes up to end and locks lock bytes.
func (t *try) patch(tactic Tactic, end, lock int) *Patch {
	f := t.f
	p := f.room.patch()
	*p = Patch{
		Tactic: tactic, At: f.start + uint64(t.at), Room: t.room,
		Displaced: f.code[t.at:end:end], Lock: f.start + uint64(t.at+lock),
		CopyLo: 0, CopyHi: math.MaxInt64,
	}
	for k := t.k; k < len(f.insts) && f.insts[k].off < end; k++ {
		at := f.start + uint64(f.insts[k].off)
		i, code := f.whole(f.insts[k])
		to, ok := i.RIPTarget(at, code)
		if !ok {
			to, ok = i.Target(at, code)
		}
		if ok && i.Prefixes&insn.PrefixAddrSize == 0 {
			lo, hi := around(to, t.room)
			p.CopyLo, p.CopyHi = max(p.CopyLo, lo), min(p.CopyHi, hi)
		}
	}
	return p
}

// around bounds the start of a detour of room bytes such that all of it can reach addr.
func around(addr uint64, room int) (lo, hi uint64) {
	if addr > bias {
		lo = addr - bias
	}
	return lo, addr + bias - 1 - uint64(room)
}

// beyond reports whether a patch up to end would need bytes of another.
func (t *try) beyond(end int) bool { return t.at < t.hard && end > t.hard }

// place finds room for the detour of a jump that ends at a given offset.
func (t *try) place(p *Patch, end int, rel [4]ByteSet) bool {
	if why := refusal(p.Displaced, p.At); why != "" {
		t.fail("the instructions under the jump can't be moved: %s", why)
		return false
	}
	w := Want{Size: t.room, Base: t.f.start + uint64(end), Rel: rel, Near: p.At}
	w.Lo, w.Hi = around(w.Base, t.room)
	// Within reach of the operands if it can be, else anywhere: the copy then
	// goes the long way to them.
	if p.CopyLo <= p.CopyHi && max(w.Lo, p.CopyLo) <= min(w.Hi, p.CopyHi) {
		near := w
		near.Lo, near.Hi = max(w.Lo, p.CopyLo), min(w.Hi, p.CopyHi)
		if a, ok := t.reach.Find(near); ok {
			p.Detour = a
			return true
		}
		if near.Lo == w.Lo && near.Hi == w.Hi {
			return false
		}
	}
	a, ok := t.reach.Find(w)
	p.Detour = a
	return ok
}

// jump is the bytes of a jump that ends at an address.
func jump(end, to uint64) []byte {
	d := uint32(to - end)
	return []byte{0xe9, byte(d), byte(d >> 8), byte(d >> 16), byte(d >> 24)}
}

func free() [4]ByteSet { return [4]ByteSet{AnyByte(), AnyByte(), AnyByte(), AnyByte()} }

// single covers one instruction of 5 bytes or more.
func (t *try) single() *Patch {
	i := t.f.insts[t.k]
	if i.Len < JumpLen {
		return t.fail("the instruction has %d of the jump's 5 bytes", i.Len)
	}
	if off, ok := t.f.targetIn(t.at+1, t.at+JumpLen); ok {
		return t.fail("a branch leads into the instruction, to +%#x", off)
	}
	if t.beyond(i.end()) {
		return t.fail("the bytes from +%#x on are another probe's", t.hard)
	}
	tactic := Single
	if i.Is(insn.Nop) {
		tactic = Nop
	}
	p := t.patch(tactic, i.end(), JumpLen)
	if !t.place(p, t.at+JumpLen, free()) {
		return t.fail("no free address within 2 GiB")
	}
	p.Writes = []Write{{p.At, jump(p.At+JumpLen, p.Detour)}}
	return p
}

// window covers several instructions. Behind one that doesn't fall through they may be no-ops, where these
// are not known to be padding: a thread that a table leads there meets a guard.
func (t *try) window() *Patch {
	f := t.f
	k := t.k
	for n := 0; ; {
		i := f.insts[k]
		n += int(i.Len)
		if k > t.k {
			if why := i.Refusal(); why != "" {
				return t.fail("the instruction at +%#x can't be moved: %s", i.off, why)
			}
		}
		if n >= JumpLen {
			break
		}
		if i.Flags.Any(insn.Call) {
			return t.fail("the call at +%#x would return into the jump", i.off)
		}
		next, ok := f.follows(k)
		if i.Is(insn.Stops) && !(ok && f.unknown && next.Is(insn.Nop)) {
			return t.fail("the code ends after %d of the jump's 5 bytes", n)
		}
		if !ok {
			return t.fail("the function ends, or what follows is no instruction")
		}
		k++
	}
	return t.guarded(Window, k, f.insts[k].end())
}

// tail covers the instructions up to one that doesn't fall through, and the padding after it.
func (t *try) tail() *Patch {
	f := t.f
	k := t.k
	for !f.insts[k].Is(insn.Stops) {
		if _, ok := f.follows(k); !ok || f.insts[k].end()-t.at >= JumpLen || f.insts[k].Is(insn.Call) {
			return nil
		}
		k++
		if f.insts[k].Refusal() != "" {
			return nil
		}
	}
	end := f.insts[k].end()
	for _, p := range f.pads {
		if p.off == end && p.end >= t.at+JumpLen {
			if !t.claim(pad{end, t.at + JumpLen}) {
				break
			}
			return t.guarded(TailPad, k, end)
		}
	}
	return t.fail("no padding after the last instruction")
}

// claim reports whether the bytes are free: no other patch and no probe needs them.
func (t *try) claim(p pad) bool {
	for _, list := range [2][]pad{*t.used, t.sites} {
		for _, u := range list {
			if p.off < u.end && u.off < p.end {
				return false
			}
		}
	}
	return true
}

// back covers the instruction together with those before it, and the padding after it if it is
// the last. The earlier instructions run in the detour first, and then the hit is recorded.
func (t *try) back() *Patch {
	f := t.f
	here := f.insts[t.k]
	if f.target(here.off) {
		return t.fail("a branch leads to it, so a jump can't begin before it")
	}
	room := 0 // padding behind it
	for _, p := range f.pads {
		if p.off == here.end() && here.Is(insn.Stops) {
			room = p.end - p.off
		}
	}
	for k := t.k - 1; k >= 0; k-- {
		i := f.insts[k]
		switch n := here.end() - i.off; {
		case i.end() != f.insts[k+1].off, i.off < t.low, i.Is(insn.Stops), i.Flags.Any(insn.Call | insn.CET), i.Refusal() != "":
			return t.fail("the instructions before it can't be moved with it")
		case n >= JumpLen:
			b := *t
			b.k, b.at = k, i.off
			if p := b.guarded(Window, t.k, here.end()); p != nil {
				b.guardBehind(p, t.k)
				return p
			}
			t.why = b.why
			return nil
		case n+room >= JumpLen && t.claim(pad{here.end(), i.off + JumpLen}):
			b := *t
			b.k, b.at = k, i.off
			if p := b.guarded(TailPad, t.k, here.end()); p != nil {
				return p
			}
			t.why = b.why
			return nil
		case f.target(i.off):
			return t.fail("a branch leads to the instruction before it")
		}
	}
	return t.fail("no instruction is before it")
}

// guardBehind guards the boundaries, up to that of the k-th instruction with the probe, that
// lie after the jump's bytes: a thread that arrives there by an unknown way is a hit, too.
func (t *try) guardBehind(p *Patch, k int) {
	w := &p.Writes[0]
	for j := t.k + 1; j <= k; j++ {
		off := t.f.insts[j].off - t.at
		if off < JumpLen {
			continue
		}
		w.Bytes = append(append(w.Bytes, p.Displaced[len(w.Bytes):off]...), 0xcc)
		p.Guards = append(p.Guards, Guard{p.At + uint64(off), 0xcc})
	}
}

// guarded covers the instructions t.k … k, which end at end.
func (t *try) guarded(tactic Tactic, k, end int) *Patch {
	f := t.f
	if t.beyond(max(end, t.at+JumpLen)) {
		return t.fail("the bytes from +%#x on are another probe's", t.hard)
	}
	if off, ok := f.targetIn(t.at+1, t.at+JumpLen); ok && off != t.led {
		return t.fail("a branch leads to bytes under the jump, at +%#x", off)
	}
	if f.splits(t.at, end) {
		return t.fail("a branch leads between two instructions")
	}
	p := t.patch(tactic, end, max(JumpLen, end-t.at))
	for _, traps := range []ByteSet{int3Only(), Traps()} {
		rel := free()
		for j := t.k + 1; j <= k; j++ {
			if off := f.insts[j].off - t.at; off < JumpLen {
				rel[off-1] = traps
			}
		}
		if !t.place(p, t.at+JumpLen, rel) {
			continue
		}
		p.Writes = []Write{{p.At, jump(p.At+JumpLen, p.Detour)}}
		for j := t.k + 1; j <= k; j++ {
			if off := f.insts[j].off - t.at; off < JumpLen {
				p.Guards = append(p.Guards, Guard{p.At + uint64(off), p.Writes[0].Bytes[off]})
			}
		}
		return p
	}
	return t.fail("no free jump target whose bytes trap at the original instructions' boundaries")
}

func int3Only() ByteSet { return OneByte(0xcc) }

// Traps are the opcodes that guards are made of: int3, and those that raise #UD in 64-bit mode
// whatever follows (Intel SDM vol. 2, table A-2: the pushes, pops and adjustments of 16- and
// 32-bit mode). Opcodes that became prefixes (62, C4, C5, D5), and those that raise #GP (hlt,
// in, out), are not among them.
func Traps() ByteSet {
	return OneByte(0xcc, 0x06, 0x07, 0x0e, 0x16, 0x17, 0x1e, 0x1f, 0x27, 0x2f, 0x37, 0x3f, 0x60, 0x61, 0xd6)
}

// punPrefixes may precede a pun's opcode without a meaning: REX.W and segments.
var punPrefixes = [...]byte{0x48, 0x26, 0x36, 0x3e}

// pun changes only bytes of the instruction. The displacement's higher bytes are what follows.
func (t *try) pun() *Patch {
	f := t.f
	i := f.insts[t.k]
	n := int(i.Len)
	if n >= JumpLen {
		n = JumpLen - 1 // single failed: a branch leads into the instruction
	}
	if off, ok := f.targetIn(t.at+1, t.at+n); ok {
		return t.fail("a branch leads into the instruction, to +%#x", off)
	}
	tried := false
	for p := 0; p < n; p++ {
		end := t.at + p + JumpLen
		if end > len(f.code) || end > t.limit {
			break
		}
		tried = true
		if behind := (pad{i.end(), end}); behind.end > behind.off && !t.claim(behind) {
			continue
		}
		rel := free()
		for b := n - p - 1; b < 4; b++ {
			rel[b] = OneByte(f.code[t.at+p+1+b])
		}
		patch := t.patch(Pun, i.end(), p+JumpLen)
		if !t.place(patch, end, rel) {
			continue
		}
		bytes := append(append([]byte(nil), punPrefixes[:p]...), jump(f.start+uint64(end), patch.Detour)...)
		patch.Writes = []Write{{patch.At, bytes[:n:n]}}
		return patch
	}
	if !tried {
		return t.fail("the next probe is too close for a jump")
	}
	return t.fail("no free address that the following bytes lead to")
}
