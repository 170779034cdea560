package main

import (
	"fmt"
	"strings"

	op "kprobe/probe/insn/internal/opcode"
)

var words = map[string]op.Attr{
	"P": op.ModRM, "-": 0,
	"fr": op.FRead, "fw": op.FWrite, "mr": op.MRead, "mw": op.MWrite,
	"priv": op.Priv, "lock": op.Lock, "str": op.Str, "regonly": op.RegOnly,
	"np": op.PPNone, "66": op.PP66, "f3": op.PPF3, "f2": op.PPF2,
}

var imms = map[string]op.Imm{
	"ib": op.ImmB, "iw": op.ImmW, "iz": op.ImmZ, "iv": op.ImmV, "id": op.ImmD,
	"ibb": op.ImmBB, "iwb": op.ImmWB, "mo": op.ImmMoffs, "jb": op.RelB, "jz": op.RelZ,
	"extrq": op.ImmEXTRQ, "suffix3d": op.ImmSuffix,
}

var classes = map[string]op.Class{
	"jcc": op.Jcc, "loop": op.Loop, "jmp": op.Jmp, "call": op.Call, "ret": op.Ret,
	"jmpind": op.JmpInd, "callind": op.CallInd, "jmpfar": op.JmpFar, "callfar": op.CallFar,
	"retfar": op.RetFar, "iret": op.IRet, "int3": op.Int3, "intn": op.IntN, "int1": op.Int1,
	"syscall": op.Syscall, "sysenter": op.Sysenter, "xbegin": op.XBegin, "halt": op.Halt,
	"ud": op.UD, "nop": op.NopOp, "hint": op.Hint, "lea": op.LEA, "x87": op.X87,
	"push": op.Push, "pop": op.Pop, "prefetch": op.Prefetch,
}

var registers = map[string]int{
	"ax": 0, "cx": 1, "dx": 2, "bx": 3, "sp": 4, "bp": 5, "si": 6, "di": 7,
}

// operands gives what the letters before the access sign mean.
var operands = map[string]struct{ base, read, write op.Attr }{
	"E":  {op.ModRM | op.EReg | op.EMem | op.EGPR, op.ERead, op.EWrite},
	"Eb": {op.ModRM | op.EReg | op.EMem | op.EGPR | op.EByte, op.ERead, op.EWrite},
	"X":  {op.ModRM | op.EReg | op.EMem, op.ERead, op.EWrite},
	"M":  {op.ModRM | op.EMem, op.ERead, op.EWrite},
	"R":  {op.ModRM | op.EReg | op.EGPR, op.ERead, op.EWrite},
	"XR": {op.ModRM | op.EReg, op.ERead, op.EWrite},
	"G":  {op.ModRM, op.GRead, op.GWrite},
	"Gb": {op.ModRM | op.GByte, op.GRead, op.GWrite},
	"V":  {0, op.VRead, op.VWrite},
	"O":  {0, op.ORead, op.OWrite},
	"Ob": {op.OByte, op.ORead, op.OWrite},
}

// attr turns the tokens of a row into an Attr.
func attr(tokens []string) (op.Attr, error) {
	var a op.Attr
	for _, tok := range tokens {
		b, err := token(tok)
		if err != nil {
			return 0, err
		}
		a |= b
	}
	if a&op.PPAll == 0 {
		a |= op.PPAll
	}
	return a, nil
}

func token(tok string) (op.Attr, error) {
	if w, ok := words[tok]; ok {
		return w, nil
	}
	if i, ok := imms[tok]; ok {
		return op.Attr(0).WithImm(i), nil
	}
	if c, ok := classes[tok]; ok {
		return op.Attr(0).WithClass(c), nil
	}
	if tok[0] == '<' || tok[0] == '>' {
		return implicit(tok)
	}
	name := strings.TrimRight(tok, "=+-")
	o, ok := operands[name]
	if !ok {
		return 0, fmt.Errorf("token %q is not known", tok)
	}
	switch tok[len(name):] {
	case "":
		return o.base | o.read, nil
	case "=":
		return o.base | o.write, nil
	case "+":
		return o.base | o.read | o.write, nil
	case "-":
		return o.base, nil
	}
	return 0, fmt.Errorf("access of %q is not known", tok)
}

func implicit(tok string) (op.Attr, error) {
	var a op.Attr
	for _, name := range strings.Split(tok[1:], ",") {
		r, ok := registers[name]
		if !ok {
			return 0, fmt.Errorf("register %q of %q is not known", name, tok)
		}
		if tok[0] == '<' {
			a = a.WithRead(r)
		} else {
			a = a.WithWrite(r)
		}
	}
	return a, nil
}
