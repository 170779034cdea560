package insn

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/arch/x86/x86asm"
)

// Symbolize names an address: the symbol, how far behind its start, and
// whether there is one.
type Symbolize func(addr uint64) (name string, off uint64, ok bool)

// Text renders the instruction at the start of code, which lies at the address
// at, in Intel syntax. sym may be nil; branch targets and RIP-relative operands
// are then bare addresses. Bytes that are no instruction, and instructions
// whose text isn't known, come as ".byte 0x…", with the mnemonic behind a # where
// that is known.
func Text(code []byte, at uint64, sym Symbolize) string {
	i, err := Decode(code)
	if err != nil {
		return bytesText(code[:min(len(code), max(int(i.Len), 1))], "")
	}
	code = code[:i.Len]
	if s, ok := i.ownText(code, at, sym); ok {
		return s
	}
	x, err := x86asm.Decode(code, 64)
	if err != nil || x.Len != int(i.Len) || x.Op == 0 || wrongName(i) {
		return bytesText(code, mnemonic(i, code))
	}
	repair(&x, i, code)
	s := x86asm.IntelSyntax(x, at, nil)
	return tidy(s, i, code, at, sym)
}

// wrongName reports the encodings that x86asm takes for others: it knows EVEX
// maps 5 and 6 as 1 and 2.
func wrongName(i Inst) bool { return i.Encoding == EVEX && i.Map > 3 }

// repair gives displacements of four bytes their sign, and RIP-relative
// operands of VEX and EVEX their base, both of which x86asm leaves out. EVEX
// displacements of one byte stay as they are in the bytes.
func repair(x *x86asm.Inst, i Inst, code []byte) {
	for n, a := range x.Args {
		m, ok := a.(x86asm.Mem)
		if !ok || i.DispLen != 4 {
			continue
		}
		m.Disp, _ = i.Disp(code)
		if i.Flags&RIPRel != 0 {
			m.Base = x86asm.RIP
		}
		x.Args[n] = m
	}
}

// ownText renders the forms that x86asm gets wrong or that name an address.
func (i Inst) ownText(code []byte, at uint64, sym Symbolize) (string, bool) {
	if t, ok := i.Target(at, code); ok {
		return i.branchName() + " " + addrText(t, sym), true
	}
	if i.Flags&CET != 0 {
		if i.ModRM == 0xfa {
			return "endbr64", true
		}
		return "endbr32", true
	}
	if name := bareName(i, code); name != "" {
		return name, true
	}
	return "", false
}

// conditions gives the names of the sixteen conditions, as objdump prints them.
const conditions = "o  no b  ae e  ne be a  s  ns p  np l  ge le g  "

func condition(op byte) string {
	c := int(op&15) * 3
	return strings.TrimRight(conditions[c:c+3], " ")
}

func (i Inst) branchName() string {
	prefix := ""
	if i.Prefixes&PrefixRepne != 0 && i.Flags&Loop == 0 {
		prefix = "bnd "
	}
	switch {
	case i.Flags&XBegin != 0:
		return "xbegin"
	case i.Flags&Loop != 0:
		name := []string{"loopne", "loope", "loop", "jrcxz"}[i.Opcode&3]
		if i.Prefixes&PrefixAddrSize != 0 {
			if name == "jrcxz" {
				return "jecxz"
			}
			return "addr32 " + name
		}
		return name
	case i.Flags&CondBranch != 0:
		return prefix + "j" + condition(i.Opcode)
	case i.Flags&Call != 0:
		return prefix + "call"
	}
	return prefix + "jmp"
}

func addrText(a uint64, sym Symbolize) string {
	s := "0x" + strconv.FormatUint(a, 16)
	if sym == nil {
		return s
	}
	name, off, ok := sym(a)
	switch {
	case !ok:
		return s
	case off == 0:
		return s + " <" + name + ">"
	}
	return s + " <" + name + "+0x" + strconv.FormatUint(off, 16) + ">"
}

// sizes are the words before a memory operand, as x86asm and objdump spell them.
var sizes = strings.NewReplacer("xmmword ptr [", "XMMWORD PTR [", "ymmword ptr [", "YMMWORD PTR [",
	"zmmword ptr [", "ZMMWORD PTR [", "qword ptr [", "QWORD PTR [", "dword ptr [", "DWORD PTR [",
	"word ptr [", "WORD PTR [", "byte ptr [", "BYTE PTR [", "tbyte ptr [", "TBYTE PTR [",
	"qword ptr fs:[", "QWORD PTR fs:[", "dword ptr fs:[", "DWORD PTR fs:[",
	"qword ptr gs:[", "QWORD PTR gs:[", "dword ptr gs:[", "DWORD PTR gs:[")

// scaled matches an index that is written factor first.
var scaled = regexp.MustCompile(`\b([1248])\*(\w+)`)

// tidy brings x86asm's spelling to objdump's, and names the address of a
// RIP-relative operand behind a #.
func tidy(s string, i Inst, code []byte, at uint64, sym Symbolize) string {
	switch {
	case i.Flags.Has(Nop) && i.ModRMOff != 0:
		s, _, _ = strings.Cut(s, ",") // the second operand of nop is no operand
	case i.Flags.Has(LEA):
		s = strings.Replace(s, ", ptr [", ", [", 1)
	}
	if strings.Contains(s, "*") {
		s = scaled.ReplaceAllString(s, "$2*$1")
	}
	if strings.Contains(s, " ptr ") {
		s = sizes.Replace(s)
	}
	if i.Prefixes&PrefixDS != 0 && i.Flags.Any(IndirectJmp|IndirectCall) {
		s = "notrack " + s
	}
	if t, ok := i.RIPTarget(at, code); ok {
		s += " # " + addrText(t, sym)
	}
	return s
}

func bytesText(code []byte, name string) string {
	var b strings.Builder
	b.WriteString(".byte ")
	for n, c := range code {
		if n > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%#02x", c)
	}
	if name != "" {
		b.WriteString(" # ")
		b.WriteString(name)
	}
	return b.String()
}
