package fetch

import (
	"fmt"
	"strconv"
	"strings"
)

// Where says where the value is, in the words of the definition language as far
// as it has them: %di is a register, -20(%bp) memory at bp - 20, \5 a constant,
// @0x404018 memory at a fixed address. What is computed is written as C would:
// ((%di >> 32) & 0xff). What lies in several places has a comma between them.
func (v *Variable) Where() string {
	if v.Parts != nil {
		places := make([]string, len(v.Parts))
		for i := range v.Parts {
			places[i] = v.Parts[i].text()
		}
		return strings.Join(places, ", ")
	}
	s := v.Chain.text()
	if v.InMemory {
		return memoryAt(s, v.Off, v.Chain.Source == SourceImm && len(v.Chain.Loads) == 0, v.Chain.Imm)
	}
	return s
}

// memoryAt is OFF(BASE), or @ADDR where the base is a number.
func memoryAt(base string, off int64, fixed bool, addr uint64) string {
	if fixed {
		return fmt.Sprintf("@%#x", addr+uint64(off))
	}
	if strings.HasPrefix(base, "(") && strings.HasSuffix(base, ")") && balanced(base[1:len(base)-1]) {
		base = base[1 : len(base)-1]
	}
	return fmt.Sprintf("%+d(%s)", off, base)
}

// balanced reports whether each parenthesis is closed within s.
func balanced(s string) bool {
	open := 0
	for i := range len(s) {
		switch s[i] {
		case '(':
			open++
		case ')':
			if open--; open < 0 {
				return false
			}
		}
	}
	return open == 0
}

// text writes a chain's value.
func (c *Chain) text() string {
	s := c.source()
	if c.Source == SourceComputed {
		for i := range c.Steps {
			s = c.Steps[i].text(s)
		}
	}
	for i, l := range c.Loads {
		s = memoryAt(s, l.Off, i == 0 && c.Source == SourceImm, c.Imm)
	}
	return s
}

func (c *Chain) source() string {
	switch c.root() {
	case SourceReg:
		return "%" + c.Reg.String()
	case SourceImm:
		if len(c.Loads) == 0 && c.Source == SourceImm {
			return `\` + strconv.FormatInt(int64(c.Imm), 10)
		}
		return fmt.Sprintf("%#x", c.Imm)
	case SourceStack:
		return fmt.Sprintf("%+d(%%sp)", c.Off)
	case SourceXMM:
		return "%xmm" + strconv.Itoa(int(c.Reg))
	case SourceVector:
		if c.Reg >= 16 {
			return "%st" + strconv.Itoa(int(c.Reg)-16)
		}
		return "%xmm" + strconv.Itoa(int(c.Reg))
	case SourceEntry:
		return "$entry" + strconv.Itoa(c.N)
	case SourceText:
		return `\` + strconv.Quote(c.Text)
	}
	return [...]string{SourcePID: "$pid", SourceTID: "$tid", SourceCPU: "$cpu", SourceTime: "$time", SourceComm: "$comm", SourceComputed: "?"}[c.root()]
}

// text writes what the step makes of s.
func (t *Step) text(s string) string {
	if t.Op == StepSince {
		return s + " - $entry" + strconv.FormatUint(t.Imm, 10)
	}
	x := strconv.FormatInt(int64(t.Imm), 10)
	switch {
	case t.FromReg:
		x = "%" + t.Reg.String()
	case t.Op == StepAnd || t.Op == StepOr || t.Op == StepXor:
		x = fmt.Sprintf("%#x", t.Imm)
	}
	if t.Op == StepLoad {
		s = memoryAt(s, int64(t.Imm), false, 0)
		if t.Size != 8 {
			s += ":x" + strconv.Itoa(int(t.Size)*8)
		}
		return s
	}
	switch t.Op {
	case StepNeg:
		return "-" + s
	case StepNot:
		return "~" + s
	}
	switch t.Op {
	case StepBase:
		return "virtual(" + s + ")"
	case StepSwap:
		return "swapped(" + s + ")"
	case StepLabel:
		return "label(" + s + ", " + strconv.Quote(t.Text) + ")"
	case StepWhen: // what it depends on is not where it is
		return s
	}
	if t.Op == StepAtMost {
		if t.FromReg {
			return s
		}
		return memoryAt(s, int64(t.Imm), false, 0)
	}
	if t.Op == StepDiff {
		return "(" + memoryAt(s, int64(t.Imm), false, 0) + " - " + memoryAt(s, int64(t.Imm2), false, 0) + ")"
	}
	op := [...]string{
		StepAdd: "+", StepSub: "-", StepMul: "*", StepAnd: "&", StepOr: "|", StepXor: "^",
		StepShl: "<<", StepShr: ">>", StepSar: ">>", StepEq: "==", StepNe: "!=",
	}[t.Op]
	if t.Op == StepAdd && strings.HasPrefix(x, "-") {
		op, x = "-", x[1:]
	}
	return "(" + s + " " + op + " " + x + ")"
}
