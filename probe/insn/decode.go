package insn

import "kprobe/probe/insn/internal/opcode"

// Decode reads the instruction at the start of code, in 64-bit mode.
//
// Errors are ErrTruncated, ErrUndefined and ErrReserved. With ErrUndefined the Inst has
// everything that could be read, and its Len is the likely length, at least 1 if code has a
// byte. With the others it is meaningless.
func Decode(code []byte) (Inst, error) {
	d := decoder{code: code}
	if len(code) > MaxLen {
		d.code = code[:MaxLen]
	}
	err := d.decode()
	if err == ErrTruncated && len(code) >= MaxLen {
		err = ErrUndefined // it would be longer than 15 bytes
		d.Len = MaxLen
	}
	d.Len = min(d.Len, MaxLen) // an instruction that is cut off might be longer
	return d.Inst, err
}

type decoder struct {
	Inst
	code []byte
	pos  int
}

// prefixOf gives the meaning of each prefix byte.
var prefixOf = [256]Prefixes{
	0x66: PrefixOpSize, 0x67: PrefixAddrSize, 0xf2: PrefixRepne, 0xf3: PrefixRep, 0xf0: PrefixLock,
	0x2e: PrefixCS, 0x36: PrefixSS, 0x3e: PrefixDS, 0x26: PrefixES, 0x64: PrefixFS, 0x65: PrefixGS,
	0x40: PrefixREX, 0x41: PrefixREX, 0x42: PrefixREX, 0x43: PrefixREX,
	0x44: PrefixREX, 0x45: PrefixREX, 0x46: PrefixREX, 0x47: PrefixREX,
	0x48: PrefixREX, 0x49: PrefixREX, 0x4a: PrefixREX, 0x4b: PrefixREX,
	0x4c: PrefixREX, 0x4d: PrefixREX, 0x4e: PrefixREX, 0x4f: PrefixREX,
}

func (d *decoder) decode() error {
	if err := d.prefixes(); err != nil {
		return err
	}
	pp := opcode.PPNone
	if d.Prefixes&(PrefixOpSize|PrefixRep|PrefixRepne) != 0 {
		pp = d.mandatory()
	}
	row, pp, err := d.opcode(pp)
	if err != nil {
		return d.stop(err)
	}
	if row&opcode.Group != 0 {
		m, ok := d.peek()
		if !ok {
			return ErrTruncated
		}
		row = opcode.InGroup(row.GroupIndex(), m)
		if row == 0 { // an undefined form has its ModRM all the same
			if err := d.modrm(); err != nil {
				return err
			}
			return d.stop(ErrUndefined)
		}
	}
	d.attr = row
	if row&opcode.ModRM != 0 {
		if err := d.modrm(); err != nil {
			return err
		}
	}
	if kind := row.Imm(); kind != opcode.ImmNone {
		if err := d.immediate(kind); err != nil {
			return err
		}
	}
	d.Len = uint8(d.pos)
	return d.check(row, pp)
}

// stop ends bytes that are not an instruction, after what was read.
func (d *decoder) stop(err error) error {
	d.Len = uint8(max(d.pos, 1))
	return err
}

func (d *decoder) peek() (byte, bool) {
	if d.pos >= len(d.code) {
		return 0, false
	}
	return d.code[d.pos], true
}

// prefixes reads legacy prefixes and REX. A REX that is not the last of them is ignored, as by
// the processor. Of F2 and F3 the last one counts.
func (d *decoder) prefixes() error {
	var set Prefixes
	var rex, legacy byte
	for k, b := range d.code {
		p := prefixOf[b]
		switch {
		case p == 0:
			d.Prefixes, d.REX, d.PrefixLen, d.pos = set, rex, legacy, k
			return nil
		case p == PrefixREX:
			rex = b & 15
			set |= PrefixREX
			continue
		case p&(PrefixRep|PrefixRepne) != 0:
			set &^= PrefixRep | PrefixRepne
		}
		rex, legacy = 0, byte(k+1)
		set = set&^PrefixREX | p
	}
	return ErrTruncated
}

// mandatory says which prefix selects the instruction in the 0F maps.
func (d *decoder) mandatory() opcode.Attr {
	switch {
	case d.Prefixes&PrefixRep != 0:
		return opcode.PPF3
	case d.Prefixes&PrefixRepne != 0:
		return opcode.PPF2
	case d.Prefixes&PrefixOpSize != 0:
		return opcode.PP66
	}
	return opcode.PPNone
}

// opcode reads the opcode and what comes before it, and returns its row and the
// mandatory prefix, which VEX and its kin carry in themselves.
func (d *decoder) opcode(pp opcode.Attr) (opcode.Attr, opcode.Attr, error) {
	b := d.code[d.pos]
	switch b {
	case 0x0f:
		row, err := d.escape()
		return row, pp, err
	case 0xc4, 0xc5, 0x62:
		return d.vector(b)
	case 0x8f:
		if d.pos+1 < len(d.code) && d.code[d.pos+1]&0x1f >= 8 {
			return d.vector(b)
		}
	case 0xd5:
		return 0, 0, ErrReserved
	}
	d.OpcodeOff = uint8(d.pos)
	d.Opcode = b
	d.pos++
	row := opcode.OneByte.At(b)
	if row == 0 {
		return 0, 0, ErrUndefined
	}
	return row, pp, nil
}

// escape reads an opcode of the maps 0F, 0F 38 and 0F 3A.
func (d *decoder) escape() (opcode.Attr, error) {
	d.pos++
	b, ok := d.peek()
	if !ok {
		return 0, ErrTruncated
	}
	d.Map = 1
	m := &opcode.Map0F
	switch b {
	case 0x0f:
		d.Encoding = AMD3DNow
	case 0x38:
		d.Map, m = 2, &opcode.Map0F38
	case 0x3a:
		d.Map, m = 3, &opcode.Map0F3A
	}
	if d.Map > 1 {
		d.pos++
		if b, ok = d.peek(); !ok {
			return 0, ErrTruncated
		}
	}
	d.OpcodeOff = uint8(d.pos)
	d.Opcode = b
	d.pos++
	row := m.At(b)
	if row != 0 {
		return row, nil
	}
	if d.Map > 1 { // all of these maps have ModRM, and the second an immediate
		if err := d.modrm(); err != nil {
			return 0, err
		}
		if d.Map == 3 {
			if err := d.immediate(opcode.ImmB); err != nil {
				return 0, err
			}
		}
	}
	return 0, ErrUndefined
}

// check applies the rules that concern the whole instruction and sets Flags.
func (d *decoder) check(row, pp opcode.Attr) error {
	if row&pp == 0 {
		return ErrUndefined
	}
	mem := false
	if row&opcode.ModRM != 0 {
		form := opcode.EReg
		if mem = d.ModRM < 0xc0 && row&opcode.RegOnly == 0; mem {
			form = opcode.EMem
		}
		if both := row & (opcode.EMem | opcode.EReg); both != 0 && both&form == 0 {
			return ErrUndefined
		}
	}
	d.setFlags(row, mem)
	if d.Prefixes&PrefixLock != 0 && !d.lockable(row) {
		return ErrUndefined
	}
	if d.Encoding == AMD3DNow {
		// The suffix is the opcode.
		d.Opcode = d.code[d.ImmOff]
		if opcode.Suffix3DNow.At(d.Opcode) == 0 {
			return ErrUndefined
		}
	}
	return nil
}

// lockable reports whether LOCK is allowed: with a memory destination and, on AMD, with mov to
// and from control registers, where it means cr8.
func (d *decoder) lockable(row opcode.Attr) bool {
	if row&opcode.RegOnly != 0 {
		return true
	}
	return row&opcode.Lock != 0 && d.ModRMOff != 0 && d.mod() != 3
}
