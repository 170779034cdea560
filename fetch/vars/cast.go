package vars

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"kprobe/fetch"
)

// cast is what stands in parentheses before an operand.
type cast struct {
	t      ctype
	member string // of (TYPE,MEMBER): the member that the address belongs to
}

// cast reads (TYPE), (TYPE*) or (TYPE,MEMBER), if an operand follows it.
func (p *parser) cast() (c cast, ok bool) {
	end := strings.IndexByte(p.s[p.at:], ')')
	if end < 0 {
		return c, false
	}
	end += p.at
	inside := p.s[p.at+1 : end]
	name, member, container := inside, "", false
	if strings.LastIndexByte(inside, '>') < strings.LastIndexByte(inside, ',') {
		name, member, container = cutLast(inside, ',')
	}
	bare := strings.TrimRight(name, "* ")
	stars := strings.Count(name[len(bare):], "*")
	bare = strings.TrimLeft(bare, " ")
	if bare == "" || end+1 >= len(p.s) || strings.ContainsAny(bare, "*(.[") || strings.Contains(bare, "->") || strings.ContainsAny(p.s[end+1:end+2], ".-[)") {
		return c, false
	}
	if container && (strings.TrimSpace(member) == "" || stars > 1) {
		return c, false
	}
	p.at = end + 1
	return cast{p.f.namedType(bare, stars), strings.TrimSpace(member)}, true
}

func cutLast(s string, sep byte) (before, after string, found bool) {
	i := strings.LastIndexByte(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

// castTo reads the operand of a cast. The kernel's casts bind before the members that follow:
// (STRUCT)ARG->FIELD means the structure at address ARG, and (STRUCT,MEMBER)ARG->FIELD the
// structure that has MEMBER at address ARG. C's casts bind after them. A structure without a
// star is always the kernel's form, because C has no such cast. A pointer is C's form if the
// operand has the members, and otherwise the kernel's.
func (p *parser) castTo(c cast) (value, error) {
	if c.t.kind == kindUnknown {
		return value{}, p.f.noType(c.t.name)
	}
	from := p.at
	if c.member == "" && c.t.kind != kindStruct {
		v, err := p.unary()
		if err == nil {
			return v.as(c.t)
		}
		var missing *NotFoundError
		var field *fetch.FieldError
		if c.t.kind != kindPointer || !errors.Is(err, errNoStruct) && !errors.Is(err, errNoTarget) && !(errors.As(err, &field) && errors.As(err, &missing)) {
			return v, err
		}
		p.at = from
	}
	v, err := p.operand()
	if err != nil {
		return v, err
	}
	if c.t.kind == kindStruct && c.member == "" && (p.at >= len(p.s) || p.s[p.at] != '-' && p.s[p.at] != '.') {
		return v.as(c.t)
	}
	v, err = v.addressOf(c)
	return p.members(v, err)
}

// operand reads the operand that a cast in the kernel's form binds to.
func (p *parser) operand() (value, error) {
	if p.depth++; p.depth > 64 {
		return value{}, errSyntax
	}
	defer func() { p.depth-- }()
	if p.peek() == '(' {
		if c, ok := p.cast(); ok {
			v, err := p.operand()
			if err != nil {
				return v, err
			}
			if c.t.kind == kindStruct || c.member != "" {
				return v.addressOf(c)
			}
			return v.as(c.t)
		}
	}
	return p.primary()
}

// addressOf treats a value as the address of the cast's structure, or of its member.
func (v value) addressOf(c cast) (value, error) {
	t := c.t
	if t.kind == kindUnknown {
		return v, v.f.noType(t.name)
	}
	if t.kind == kindStruct {
		t = ctype{kind: kindPointer, name: t.name + "*", size: 8, elem: t.entry.Ref()}
	}
	if c.member != "" && t.kind != kindPointer {
		return v, fmt.Errorf("%s %w", t, errNoStruct)
	}
	v, err := v.as(t)
	if err != nil || c.member == "" {
		return v, err
	}
	// The member's offset is its address in a structure at address 0.
	to := v.f.resolve(t.elem)
	at := value{f: v.f, t: v.f.whole(to), p: place{kind: inMemory, sym: constant(0)}}
	for name := range strings.SplitSeq(c.member, ".") {
		if at.t.kind == kindPointer || at.t.kind == kindReference {
			return v, fmt.Errorf("%s: a member that a pointer leads to is not part of %s", c.member, to)
		}
		if at, err = at.field(name); err != nil {
			return v, err
		}
	}
	off, known := at.p.sym.isConst()
	if at.p.kind != inMemory || !known || off > 1<<31 {
		return v, unknown("it is not known where %s is in %s", c.member, to)
	}
	if at.width != 0 {
		return v, fmt.Errorf("%s is a bitfield, which has no address", c.member)
	}
	s, err := v.p.value(8)
	v.p = place{kind: isValue, sym: s.add(-int64(off))}
	return v, err
}

// typeWords are the words that stand before a C type's name, or are part of it.
var typeWords = [...]string{"struct", "union", "enum", "class", "const", "volatile", "restrict"}

// namedType finds a type by its name. A type that isn't found has no kind.
func (f *frame) namedType(name string, stars int) ctype {
	words := slices.DeleteFunc(strings.Fields(name), func(w string) bool { return slices.Contains(typeWords[:], w) })
	bare := strings.Join(words, " ")
	t := ctype{name: name}
	if bare == "void" && stars == 1 {
		return ctype{kind: kindPointer, name: name + "*", size: 8}
	}
	list := spellings(bare, words)
	if strings.Contains(bare, "<") {
		list = append(list, spaced(bare), spaced(asGNU(bare)))
	}
	for _, spelled := range list {
		e, ok := f.data.FindType(spelled, f.fn.Unit())
		if !ok {
			continue
		}
		if stars > 0 {
			return ctype{kind: kindPointer, name: name + strings.Repeat("*", stars), size: 8, elem: e.Ref(), stars: stars - 1}
		}
		return f.resolve(e.Ref())
	}
	return t
}

// spaced writes a template's name with a blank after each comma, as compilers do.
func spaced(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, ", ", ","), ",", ", ")
}

// spellings returns the spellings of a type's name: the given one, and for integers those of
// GCC and clang.
func spellings(bare string, words []string) []string {
	long, unsigned, signed := 0, false, false
	base := "int"
	for _, w := range words {
		switch w {
		case "long":
			long++
		case "unsigned":
			unsigned = true
		case "signed":
			signed = true
		case "int":
		case "short", "char":
			base = w
		default:
			return []string{bare}
		}
	}
	if len(words) == 0 || long > 2 || long > 0 && base != "int" || unsigned && signed {
		return []string{bare}
	}
	sign := ""
	if unsigned {
		sign = "unsigned "
	}
	switch {
	case base == "char" && signed:
		return []string{"signed char"}
	case base == "char":
		return []string{sign + "char"}
	case base == "short":
		return []string{"short " + sign + "int", sign + "short"}
	case long > 0:
		l := strings.Repeat("long ", long)
		return []string{l + sign + "int", strings.TrimSpace(sign + l)}
	}
	return []string{sign + "int"}
}

// as converts a value to another type, as a cast in C does.
func (v value) as(t ctype) (value, error) {
	if t.kind == kindUnknown {
		return v, v.f.noType(t.name)
	}
	v, err := v.unreference()
	if err != nil {
		return v, err
	}
	if v.t.kind == kindArray && t.kind == kindPointer {
		if v.p.kind != inMemory {
			return v, fetch.ErrNoValue
		}
		v.p.kind = isValue // the array's address
		v.t, v.width, v.bit = t, 0, 0
		return v, nil
	}
	switch {
	case isInteger(v.t) && isInteger(t):
		if v, err = v.widened(t); err != nil {
			return v, err
		}
	case v.t.kind == t.kind && v.t.size == t.size: // another name of the same type
	default:
		return v, fmt.Errorf("a %s can't be cast to a %s: only addresses and integers can", v.t, t)
	}
	v.t, v.width, v.bit = t, 0, 0
	return v, nil
}

func isInteger(t ctype) bool {
	switch t.kind {
	case kindInt, kindUint, kindChar, kindBool, kindEnum, kindPointer:
		return t.size > 0 && t.size <= 8
	}
	return false
}

// widened extends bitfields, and numbers that a cast makes larger, to 64 bits by their sign.
func (v value) widened(t ctype) (value, error) {
	bits := int64(v.width)
	if bits == 0 {
		bits = v.t.size * 8
	}
	if v.width == 0 && t.size <= v.t.size && t.kind != kindBool {
		return v, nil
	}
	if t.kind == kindBool {
		return v, fmt.Errorf("a %s can't be cast to a %s: compare it in a filter", v.t, t)
	}
	var s sym
	if v.p.kind == inMemory {
		s = v.p.sym.load(uint8(v.t.size))
	} else {
		var err error
		if s, err = v.p.value(v.t.size); err != nil {
			return v, err
		}
	}
	if up := 64 - bits - int64(v.bit); up > 0 {
		s = s.step(fetch.Step{Op: fetch.StepShl, Imm: uint64(up)})
	}
	if down := 64 - bits; down > 0 {
		op := fetch.StepShr
		if v.t.kind == kindInt || v.t.signed {
			op = fetch.StepSar
		}
		s = s.step(fetch.Step{Op: op, Imm: uint64(down)})
	}
	v.p = place{kind: isValue, sym: s}
	return v, nil
}

// noType returns the error for a type that the place's file doesn't have.
func (f *frame) noType(name string) error {
	return &NotFoundError{Name: "type " + name, Where: f.module.File.Name, Types: true}
}
