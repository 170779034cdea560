package vars

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"kprobe/fetch"
	"kprobe/symbols"
)

// Arguments of statically defined probes
//
// A note lists the arguments as assembler operands with sizes: where sys/sdt.h's macros stand,
// the compiler has written where each value is. Whether the operand is a register, a constant
// or memory, the argument is a value of 64 bits, extended as the note says, so that pointers can
// be followed.

// noArgumentError is a fetch.ErrNoValue about a note.
type noArgumentError struct{ err error }

func (e noArgumentError) Error() string   { return e.err.Error() }
func (e noArgumentError) Unwrap() []error { return []error{e.err, fetch.ErrNoValue} }

// notedArgument returns the N-th argument of the site's note, counted from 1.
func (s *Scope) notedArgument(n int) (fetch.Variable, error) {
	args, errs := s.site.NamedAs().USDT.Arguments()
	switch {
	case n < 1 || n > len(args):
		has := fmt.Sprintf("has %d arguments", len(args))
		switch len(args) {
		case 0:
			has = "has no arguments"
		case 1:
			has = "has one argument"
		}
		return fetch.Variable{}, noArgumentError{fmt.Errorf("%s %s at %s", s.site.NamedAs().USDT, has, s.address())}
	case errs[n-1] != nil:
		return fetch.Variable{}, noArgumentError{errs[n-1]}
	}
	v, err := s.operand(&args[n-1])
	if err != nil {
		return fetch.Variable{}, noArgumentError{fmt.Errorf("the note's argument %s can't be fetched: %w", strconv.Quote(args[n-1].Text), err)}
	}
	return fetch.Variable{
		Name: "arg" + strconv.Itoa(n), Chain: v.whole(), Type: notedType(&args[n-1]),
		Pointer: args[n-1].Size == 8 && !args[n-1].Float,
	}, nil
}

// address names the site by its function, because several probes may have the same name.
func (s *Scope) address() string {
	if s.site.Func.Start == 0 {
		return s.site.Addr.String()
	}
	return symbols.OffsetName(s.site.Func.Symbol.Demangled(), s.site.Offset)
}

// noted lists the arguments of the site's note.
func (s *Scope) noted() (out []fetch.Variable) {
	args, _ := s.site.NamedAs().USDT.Arguments()
	for i := range args {
		v, err := s.notedArgument(i + 1)
		if err != nil {
			v = fetch.GoneVariable("arg"+strconv.Itoa(i+1), fetch.NotRecorded)
		}
		out = append(out, v)
	}
	return out
}

// describeNoted describes the arguments of the site's note, if it has one.
func (s *Scope) describeNoted() (out []Description) {
	if s.site.NamedAs().USDT == nil {
		return nil
	}
	args, _ := s.site.NamedAs().USDT.Arguments()
	for i := range args {
		d := Description{Name: "$arg" + strconv.Itoa(i+1), Type: notedType(&args[i]).String(), Param: true}
		if v, err := s.notedArgument(i + 1); err != nil {
			d.Where = err.Error()
		} else {
			d.At = v.Where()
		}
		out = append(out, d)
	}
	return out
}

// notedType returns the type that a note gives its argument. Eight bytes without a sign may be
// an address, and are printed as one.
func notedType(a *symbols.USDTArg) fetch.Type {
	t := fetch.Type{Base: fetch.Unsigned, Size: uint8(a.Size)}
	switch {
	case a.Float:
		t.Base = fetch.Float
	case a.Signed:
		t.Base = fetch.Signed
	case a.Size == 8:
		t.Base = fetch.Hex
	}
	return t
}

// noted resolves $argN if a member or a cast applies to it.
func (f *frame) noted(name string, n int) (value, error) {
	args, errs := f.scope.site.NamedAs().USDT.Arguments()
	if n < 1 || n > len(args) || errs[n-1] != nil {
		_, err := f.scope.notedArgument(n)
		return value{}, err
	}
	v, err := f.scope.operand(&args[n-1])
	if err != nil {
		return value{}, fmt.Errorf("%s: %w", name, err)
	}
	t := ctype{kind: kindUint, size: int64(args[n-1].Size), name: notedType(&args[n-1]).String()}
	switch {
	case args[n-1].Float:
		t.kind = kindFloat
	case args[n-1].Signed:
		t.kind, t.signed = kindInt, true
	}
	return value{f: f, t: t, p: place{kind: isValue, sym: v}}, nil
}

var errNoOperand = errors.New("there is no such register")

// operand returns the value of an argument, extended to 64 bits.
func (s *Scope) operand(a *symbols.USDTArg) (v sym, err error) {
	switch a.Kind {
	case symbols.USDTImm:
		n := uint64(a.Disp)
		if a.Symbol != "" {
			at, err := s.space.SymbolFor(s.site, a.Symbol)
			if err != nil {
				return v, err
			}
			n += uint64(at)
		}
		return constant(extend(n, a)), nil
	case symbols.USDTReg:
		if n, ok := vectorRegister(a.Reg); ok {
			return sym{src: fetch.Chain{Source: fetch.SourceXMM, Reg: fetch.Reg(n)}}, nil
		}
		r, high, ok := partRegister(a.Reg)
		if !ok {
			return v, errNoOperand
		}
		if v = register(r); high {
			v = v.step(fetch.Step{Op: fetch.StepShr, Imm: 8})
		}
		return v.extended(a), nil
	}
	if v, err = s.operandAddress(a); err != nil || a.Got {
		return v, err
	}
	v = v.load(uint8(a.Size))
	if a.Signed {
		v = v.extended(a)
	}
	return v, nil
}

// operandAddress returns the address of an operand in memory.
func (s *Scope) operandAddress(a *symbols.USDTArg) (v sym, err error) {
	at := uint64(a.Disp)
	if a.Symbol != "" {
		found, err := s.space.SymbolFor(s.site, a.Symbol)
		if err != nil {
			return v, err
		}
		at += uint64(found)
	}
	var parts []fetch.Reg
	for _, name := range []string{a.Index, a.Base} {
		if name == "" || name == "rip" {
			continue
		}
		r, ok := wordRegister(name)
		if !ok {
			return v, errNoOperand
		}
		parts = append(parts, r)
	}
	if a.Base == "rip" && (a.Symbol == "" || a.Index != "") {
		return v, errors.New("it is relative to an unknown instruction")
	}
	switch a.Segment {
	case "fs":
		parts = append(parts, fetch.RegFSBase)
	case "gs":
		parts = append(parts, fetch.RegGSBase)
	}
	if len(parts) == 0 {
		return constant(at), nil
	}
	v = register(parts[0])
	if a.Index != "" && a.Scale > 1 {
		v = v.step(fetch.Step{Op: fetch.StepMul, Imm: uint64(a.Scale)})
	}
	for _, r := range parts[1:] {
		v = v.step(fetch.Step{Op: fetch.StepAdd, FromReg: true, Reg: r})
	}
	return v.add(int64(at)), nil
}

// extended extends a value from its argument's size to 64 bits.
func (v sym) extended(a *symbols.USDTArg) sym {
	if a.Size == 8 {
		return v
	}
	bits := uint64(64 - 8*a.Size)
	op := fetch.StepShr
	if a.Signed {
		op = fetch.StepSar
	}
	return v.step(fetch.Step{Op: fetch.StepShl, Imm: bits}).step(fetch.Step{Op: op, Imm: bits})
}

func extend(n uint64, a *symbols.USDTArg) uint64 {
	bits := 64 - 8*a.Size
	if a.Signed {
		return uint64(int64(n<<bits) >> bits)
	}
	return n << bits >> bits
}

// wordRegister finds a general register by the name of all its 64 bits.
func wordRegister(name string) (fetch.Reg, bool) {
	for r, legacy := range generalNames() {
		if name == "r"+legacy || r >= fetch.R8 && name == legacy {
			return fetch.Reg(r), true
		}
	}
	return 0, false
}

// generalNames returns the stems from which the names of general registers and their parts are
// made, in the order of the registers' numbers.
func generalNames() [16]string {
	return [16]string{"ax", "cx", "dx", "bx", "sp", "bp", "si", "di", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"}
}

// partRegister finds a general register by its name, or by the name of a part. high says that
// the part begins with the ninth bit.
func partRegister(name string) (r fetch.Reg, high, ok bool) {
	if r, ok := wordRegister(name); ok {
		return r, false, true
	}
	for i, legacy := range generalNames() {
		r := fetch.Reg(i)
		if i >= fetch.R8 {
			if part, ok := strings.CutPrefix(name, legacy); ok && (part == "d" || part == "w" || part == "b") {
				return r, false, true
			}
			continue
		}
		switch name {
		case legacy, "e" + legacy, legacy + "l", strings.TrimSuffix(legacy, "x") + "l":
			return r, false, true
		case strings.TrimSuffix(legacy, "x") + "h":
			return r, true, i <= fetch.BX
		}
	}
	return 0, false, false
}

// vectorRegister returns the number of the xmm register with a name.
func vectorRegister(name string) (int, bool) {
	number, ok := strings.CutPrefix(name, "xmm")
	n, err := strconv.Atoi(number)
	return n, ok && err == nil && n >= 0 && n < 16
}
