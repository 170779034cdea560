package insn

import "kprobe/probe/insn/internal/opcode"

// Part is how long an instruction is, and what it is: what most callers ask of most instructions.
type Part struct {
	Flags Flags
	Len   uint8
	imm   uint8 // bytes of the immediate or displacement that a branch or a return ends with
}

// Target returns where a direct branch goes, like Inst.Target.
func (p Part) Target(at uint64, code []byte) (target uint64, ok bool) {
	if p.Flags&RelBranch == 0 {
		return 0, false
	}
	d, ok := p.signed(code)
	return at + uint64(p.Len) + uint64(d), ok
}

// signed is Inst.Signed for a branch or a return.
func (p Part) signed(code []byte) (v int64, ok bool) {
	if p.imm == 0 {
		return 0, false
	}
	return field(code, p.Len-p.imm, p.imm)
}

// DecodePart is Decode for those who need no more than a Part. It takes a third of the time. The errors are the same, and
// so are Flags and Len if there is none.
func DecodePart(code []byte) (Part, error) {
	if len(code) >= ahead {
		if p, ok := common((*[ahead]byte)(code)); ok && int(p.Len) <= len(code) {
			return p, nil
		}
	} else {
		var padded [ahead]byte
		copy(padded[:], code)
		// An instruction that ends with the code depends on nothing behind it.
		if p, ok := common(&padded); ok && int(p.Len) <= len(code) {
			return p, nil
		}
	}
	i, err := Decode(code)
	return Part{Flags: i.Flags, Len: i.Len, imm: i.ImmLen}, err
}

// sizes packs Len and imm into a byte.
func (p Part) sizes() uint8 { return p.Len | p.imm<<4 }

// ahead is how many bytes common looks at.
const ahead = 16

// brief is what a row of the opcode tables says about instructions that common knows.
type brief struct {
	reg, mem Flags    // of the forms without and with a memory operand
	imm      [4]uint8 // bytes of the immediate: with 66 in bit 0, with REX.W in bit 1
	pps      uint8    // mandatory prefixes with which it is known, as bits of selects
	how      uint8    // as below
	group    uint8    // the number of the group
	bytes    bool     // a register that is written is one of a byte
}

// Members of brief.how.
const (
	hasModRM = 1 << iota
	isGroup  // ModRM selects the row
	noReg    // mod = 3 is undefined
	noMem    // mod < 3 is undefined
	// The register in ModRM.rm, in ModRM.reg or in the opcode is written.
	writesRM
	writesReg
	writesLow
)

// selects gives the mandatory prefix of a set of 66, F2 and F3: a bit of brief.pps. It is 0 for several of them.
var selects = [16]uint8{0: 1, PrefixOpSize: 2, PrefixRep: 4, PrefixRepne: 8}

// briefs are the rows of opcode.Rows.
var briefs = makeBriefs()

func makeBriefs() (out [len(opcode.Rows)]brief) {
	for n := range out {
		out[n] = briefOf(opcode.Rows[n])
	}
	return out
}

// briefOf makes the brief of a row; the zero brief if common leaves it to Decode.
func briefOf(row opcode.Attr) (b brief) {
	if row == 0 {
		return b
	}
	if row&opcode.Group != 0 {
		return brief{how: isGroup, group: uint8(row.GroupIndex())}
	}
	switch class := row.Class(); {
	case row&opcode.RegOnly != 0, class == opcode.Hint, class == opcode.NopOp && row&opcode.ModRM == 0:
		return b
	case row.Imm() == opcode.ImmEXTRQ, row.Imm() == opcode.ImmSuffix:
		return b
	}
	form := decoder{}
	form.attr = row
	form.setFlags(row, false)
	b.reg = form.Flags
	form = decoder{}
	form.attr = row
	form.setFlags(row, true)
	b.mem = form.Flags
	for k := range b.imm {
		form = decoder{}
		if k&1 != 0 {
			form.Prefixes = PrefixOpSize
		}
		if k&2 != 0 {
			form.REX = REXW
		}
		b.imm[k] = form.immLen(row.Imm())
	}
	for k, pp := range [...]opcode.Attr{opcode.PPNone, opcode.PP66, opcode.PPF3, opcode.PPF2} {
		repeated := k > 1 && row&opcode.Str != 0
		doubtful := k == 1 && b.reg&near != 0
		if row&pp != 0 && !repeated && !doubtful {
			b.pps |= 1 << k
		}
	}
	for _, x := range [...]struct {
		has opcode.Attr
		how uint8
	}{
		{opcode.ModRM, hasModRM},
		{opcode.EWrite, writesRM}, {opcode.GWrite, writesReg}, {opcode.OWrite, writesLow},
	} {
		if row&x.has != 0 {
			b.how |= x.how
		}
	}
	if row&opcode.EGPR == 0 {
		b.how &^= writesRM
	}
	b.bytes = row&(opcode.EByte|opcode.GByte|opcode.OByte) != 0
	switch row & (opcode.EMem | opcode.EReg) {
	case opcode.EMem:
		b.how |= noReg
	case opcode.EReg:
		b.how |= noMem
	}
	return b
}

// tails gives for each ModRM how many bytes of SIB and displacement follow it. One more displacement may follow from SIB.
var tails = makeTails()

func makeTails() (out [256]uint8) {
	for m := range 0xc0 {
		mod, rm := m>>6, m&7
		if rm == 4 {
			out[m]++
		}
		if mod == 1 {
			out[m]++
		}
		if mod == 2 || mod == 0 && rm == 5 {
			out[m] += 4
		}
	}
	return out
}

// common reads the instruction at the start of code if it is one of those that nearly all code consists of: of the
// first two opcode maps, and nowhere near the edge of what is defined.
func common(code *[ahead]byte) (p Part, ok bool) {
	var rex byte
	var set Prefixes
	k, b := 0, code[0]
	for pre := prefixOf[b]; pre != 0; pre = prefixOf[b] {
		if pre&(PrefixLock|PrefixAddrSize) != 0 || rex != 0 || k == mostPrefixes {
			return p, false
		}
		if pre == PrefixREX {
			rex = b
		}
		set |= pre
		k++
		b = code[k%ahead]
	}
	row := opcode.OneByte[b]
	if b == 0x0f {
		k++
		b = code[k%ahead]
		row = opcode.Map0F[b]
	}
	k++
	f, m := &briefs[row], code[k%ahead]
	if f.how&isGroup != 0 {
		f = &briefs[opcode.GroupRow(int(f.group), m)]
	}
	if f.pps&selects[set&15] == 0 {
		return p, false
	}
	p.Flags = f.reg
	sp := f.how&writesLow != 0 && isRSP(b, rex&REXB)
	if f.how&hasModRM != 0 {
		k++
		sp = sp || f.how&writesReg != 0 && isRSP(m>>3, rex&REXR)
		if m >= 0xc0 {
			if f.how&noReg != 0 {
				return p, false
			}
			sp = sp || f.how&writesRM != 0 && isRSP(m, rex&REXB)
		} else {
			if f.how&noMem != 0 {
				return p, false
			}
			p.Flags = f.mem
			switch {
			case m&0xc7 == 5:
				p.Flags |= RIPRel
			case m&0xc7 == 4 && code[k%ahead]&7 == 5:
				k += 4
			}
			k += int(tails[m])
		}
	}
	if sp {
		if f.bytes {
			return p, false // it may be ah
		}
		p.Flags |= WritesSP
	}
	p.imm = f.imm[set&PrefixOpSize|Prefixes(rex&REXW>>2)]
	k += int(p.imm)
	p.Len = uint8(k)
	return p, k <= MaxLen
}

// mostPrefixes is how many prefixes common reads.
const mostPrefixes = 5

// isRSP reports whether the low three bits of a field, with its bit of REX, are the number of rsp.
func isRSP(field, high byte) bool { return field&7 == byte(RSP) && high == 0 }
