package symbols

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// USDTArg is one argument of a statically defined probe as its note has it: N@OPERAND, where
// the operand is in AT&T's assembler syntax.
type USDTArg struct {
	Text   string // as the note has it
	Size   int    // in bytes: 1, 2, 4 or 8
	Signed bool   // N is negative
	Float  bool   // an f follows N
	Kind   USDTKind
	// Reg is the register of USDTReg. Base and Index are those of USDTMemory; "" means none.
	// The base rip says that the operand is at Symbol. Names have no %.
	Reg, Base, Index string
	Scale            int64  // of Index
	Segment          string // of USDTMemory: "fs", "gs"; "" is none
	Symbol           string // that Disp is counted from; "" is none
	Disp             int64  // of USDTMemory; the value of USDTImm
	Got              bool   // the operand holds the address of Symbol
}

// USDTKind is a form of operand.
type USDTKind uint8

// The forms of operands.
const (
	USDTImm    USDTKind = iota // $NUMBER, $SYMBOL+NUMBER
	USDTReg                    // %REG
	USDTMemory                 // DISP(%BASE,%INDEX,SCALE), SYMBOL+DISP(%rip), %fs:…
)

// USDTArgError says that an argument of a note has a form that kprobe can't read.
type USDTArgError struct {
	Text string
	Why  string
}

func (e *USDTArgError) Error() string {
	return fmt.Sprintf("the note's argument %s can't be read: %s", strconv.Quote(e.Text), e.Why)
}

// maxUSDTArgs limits the arguments of a note. sys/sdt.h allows 12.
const maxUSDTArgs = 64

// Arguments splits the note's arguments. An argument that can't be read has an error at the
// same index of errs; the others are valid.
func (u *USDT) Arguments() (args []USDTArg, errs []error) {
	intel := strings.ContainsAny(u.Args, "[]")
	for _, text := range splitUSDTArgs(u.Args) {
		if len(args) == maxUSDTArgs {
			break
		}
		a, err := parseUSDTArg(text)
		if intel {
			err = &USDTArgError{u.Args, "it is in Intel's syntax, not in AT&T's"}
		}
		args, errs = append(args, a), append(errs, err)
	}
	return args, errs
}

// splitUSDTArgs splits at blanks outside of parentheses.
func splitUSDTArgs(s string) []string {
	if strings.Count(s, "(") != strings.Count(s, ")") {
		return strings.Fields(s)
	}
	open := 0
	return strings.FieldsFunc(s, func(r rune) bool {
		switch r {
		case '(':
			open++
		case ')':
			open--
		}
		return open <= 0 && (r == ' ' || r == '\t')
	})
}

func parseUSDTArg(text string) (a USDTArg, err error) {
	a = USDTArg{Text: text, Size: 8}
	op := text
	if head, rest, ok := strings.Cut(text, "@"); ok && head != "" && strings.Trim(head, "-0123456789f") == "" {
		op = rest
		head, a.Float = strings.CutSuffix(head, "f")
		n, err := strconv.Atoi(head)
		if a.Signed = n < 0; a.Signed {
			n = -n
		}
		if err != nil || n != 1 && n != 2 && n != 4 && n != 8 || a.Float && n < 4 {
			return a, &USDTArgError{text, "its size is unknown"}
		}
		a.Size = n
	}
	if why := a.operand(op); why != nil {
		return a, &USDTArgError{text, why.Error()}
	}
	return a, nil
}

var errUSDTOperand = errors.New("it is not a known form of an assembler operand")

func (a *USDTArg) operand(op string) error {
	switch {
	case op == "":
		return errUSDTOperand
	case op[0] == '$':
		a.Kind = USDTImm
		return a.displacement(op[1:])
	case op[0] == '%' && !strings.ContainsAny(op, ":("):
		a.Kind, a.Reg = USDTReg, op[1:]
		return nil
	}
	a.Kind = USDTMemory
	if op[0] == '%' {
		segment, rest, _ := strings.Cut(op[1:], ":")
		if segment != "fs" && segment != "gs" {
			return errUSDTOperand
		}
		a.Segment, op = segment, rest
	}
	disp, inside, ok := strings.Cut(op, "(")
	if ok {
		var closed bool
		if inside, closed = strings.CutSuffix(inside, ")"); !closed {
			return errUSDTOperand
		}
		if err := a.base(inside); err != nil {
			return err
		}
	}
	if disp == "" {
		return nil
	}
	return a.displacement(disp)
}

// base reads %BASE,%INDEX,SCALE.
func (a *USDTArg) base(s string) error {
	parts := strings.Split(s, ",")
	if len(parts) > 3 {
		return errUSDTOperand
	}
	a.Scale = 1
	for i, part := range parts {
		part = strings.TrimSpace(part)
		switch {
		case i == 2 && part != "":
			n, err := strconv.ParseInt(part, 0, 8)
			if err != nil || n != 1 && n != 2 && n != 4 && n != 8 {
				return errUSDTOperand
			}
			a.Scale = n
		case part == "":
		case part[0] != '%' || len(part) == 1:
			return errUSDTOperand
		case i == 0:
			a.Base = part[1:]
		default:
			a.Index = part[1:]
		}
	}
	if a.Base == "" && a.Index == "" {
		return errUSDTOperand
	}
	return nil
}

// displacement reads a sum of numbers and at most one symbol.
func (a *USDTArg) displacement(s string) error {
	for rest := s; rest != ""; {
		sign := int64(1)
		for rest != "" && (rest[0] == '+' || rest[0] == '-') {
			if rest[0] == '-' {
				sign = -sign
			}
			rest = rest[1:]
		}
		term := rest
		if i := strings.IndexAny(rest, "+-"); i >= 0 {
			term = rest[:i]
		}
		rest = rest[len(term):]
		switch {
		case term == "":
			return errUSDTOperand
		case term[0] >= '0' && term[0] <= '9':
			n, err := strconv.ParseUint(term, 0, 64)
			if err != nil {
				return errUSDTOperand
			}
			a.Disp += sign * int64(n)
		case a.Symbol != "" || sign < 0:
			return errUSDTOperand
		case strings.IndexFunc(term, notInAsmName) >= 0:
			return errUSDTOperand
		default:
			a.Symbol = term
		}
	}
	name, suffix, ok := strings.Cut(a.Symbol, "@")
	switch {
	case s == "":
		return errUSDTOperand
	case !ok:
	case suffix == "GOTPCREL" && a.Base == "rip" && a.Disp == 0:
		a.Symbol, a.Got = name, true
	case suffix == "PLT":
		a.Symbol = name
	default:
		return fmt.Errorf("%s is a thread-local variable, which has no fixed address", a.Symbol)
	}
	if a.Kind == USDTMemory && a.Base == "rip" && a.Symbol == "" {
		return errors.New("it is relative to an unknown instruction")
	}
	return nil
}

// notInAsmName reports whether no assembler name can contain a character.
func notInAsmName(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r >= 0x80 || strings.ContainsRune("_.$@", r))
}
