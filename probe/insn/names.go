package insn

// bareName returns the text of instructions without operands that x86asm
// doesn't know or reads wrongly.
func bareName(i Inst, code []byte) string {
	if i.Encoding == VEX && i.Map == 1 && i.Opcode == 0x77 {
		if code[i.OpcodeOff-1]&4 != 0 {
			return "vzeroall"
		}
		return "vzeroupper"
	}
	if i.Encoding != Legacy || i.Map != 1 || i.Opcode != 0x01 || i.mod() != 3 {
		return ""
	}
	return system[i.ModRM]
}

// system names the instructions 0F 01 with an exact ModRM byte.
var system = [256]string{
	0xc0: "enclv", 0xc1: "vmcall", 0xc2: "vmlaunch", 0xc3: "vmresume", 0xc4: "vmxoff",
	0xc5: "pconfig", 0xca: "clac", 0xcb: "stac", 0xcf: "encls",
	0xd0: "xgetbv", 0xd1: "xsetbv", 0xd4: "vmfunc", 0xd5: "xend", 0xd6: "xtest", 0xd7: "enclu",
	0xd9: "vmmcall", 0xdc: "stgi", 0xdd: "clgi",
	0xee: "rdpkru", 0xef: "wrpkru", 0xf8: "swapgs", 0xf9: "rdtscp", 0xfd: "rdpru",
}

// mnemonic names what x86asm doesn't, as far as it is known: the family, not
// the operands.
func mnemonic(i Inst, _ []byte) string {
	op, f3, half := i.Opcode, i.Prefixes&PrefixRep != 0, i.Prefixes&PrefixOpSize != 0
	switch {
	case i.Encoding != Legacy:
		return map[Encoding]string{VEX: "vex", EVEX: "evex", XOP: "xop", AMD3DNow: "3dnow"}[i.Encoding]
	case i.Map == 1 && op == 0x1e && f3:
		return "rdssp"
	case i.Map == 1 && op == 0x0e:
		return "femms"
	case i.Map == 1 && op == 0xc7 && i.mod() == 3 && f3:
		return "rdpid"
	case i.Map == 1 && op == 0xc7 && i.mod() == 3:
		return "rdseed"
	case i.Map == 2 && op == 0xf6 && half:
		return "adcx"
	case i.Map == 2 && op == 0xf6 && f3:
		return "adox"
	case i.Map == 2 && op == 0xf8:
		return "movdir64b"
	case i.Map == 2 && op == 0xf9:
		return "movdiri"
	case i.Flags&Nop != 0:
		return "nop"
	case i.Flags&X87 != 0:
		return "x87"
	}
	return ""
}
