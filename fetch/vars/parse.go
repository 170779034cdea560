package vars

import (
	"debug/dwarf"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"kprobe/fetch"
	"kprobe/symbols/debuginfo"
)

// parser reads an expression as C does: what follows a name binds before what stands before
// it.
type parser struct {
	f     *frame
	s     string
	at    int
	depth int
}

var errSyntax = errors.New("not of the form NAME, NAME->FIELD, NAME.FIELD, NAME[N], *NAME, (TYPE)NAME or (TYPE,FIELD)NAME->FIELD")

func (p *parser) parse() (value, error) {
	v, err := p.unary()
	if err == nil && p.at < len(p.s) {
		return v, fmt.Errorf("%s: %w", p.s, errSyntax)
	}
	return v, err
}

func (p *parser) peek() byte {
	if p.at < len(p.s) {
		return p.s[p.at]
	}
	return 0
}

func (p *parser) unary() (value, error) {
	if p.depth++; p.depth > 64 {
		return value{}, errSyntax
	}
	defer func() { p.depth-- }()
	switch p.peek() {
	case '*':
		p.at++
		v, err := p.unary()
		if err != nil {
			return v, err
		}
		if v, err = v.unreference(); err != nil {
			return v, err
		}
		if v, err = v.deref(); err != nil {
			return v, fmt.Errorf("%s: %w", p.s, err)
		}
		return v, nil
	case '(':
		if c, ok := p.cast(); ok {
			return p.castTo(c)
		}
	}
	return p.postfix()
}

// fieldError distinguishes a member that doesn't exist from one that exists and has no value.
func fieldError(err error, at int) error {
	var missing *NotFoundError
	switch {
	case at > 0 && errors.Is(err, errNoStruct):
		return &fetch.FieldError{Code: fetch.NoPtrStrct, At: at, Err: err}
	case at > 0 && errors.As(err, &missing):
		return &fetch.FieldError{Code: fetch.NoBTFField, At: at, Err: err}
	}
	return err
}

func (p *parser) postfix() (value, error) {
	v, err := p.primary()
	return p.members(v, err)
}

// members reads what follows an operand: ->FIELD, .FIELD and [N].
func (p *parser) members(v value, err error) (value, error) {
	for err == nil && p.at < len(p.s) {
		rest, from := p.s[p.at:], 0
		switch {
		case strings.HasPrefix(rest, "->"):
			p.at += 2
			from = p.at
			v, err = v.variantField(p.word())
		case rest[0] == '.':
			p.at++
			from = p.at
			v, err = v.variantField(p.word())
		case rest[0] == '[':
			end := strings.IndexByte(rest, ']')
			if end < 0 {
				return v, fmt.Errorf("%s: %w", p.s, errSyntax)
			}
			n, perr := strconv.ParseInt(rest[1:end], 0, 32)
			if perr != nil {
				return v, fmt.Errorf("%s: the element's number must be a constant", p.s)
			}
			p.at += end + 1
			v, err = v.index(n)
		default:
			return v, nil
		}
		if err != nil {
			return v, fieldError(fmt.Errorf("%s: %w", p.s[:p.at], err), from)
		}
	}
	return v, err
}

// word reads a name, with namespaces and template arguments.
func (p *parser) word() string {
	from, open := p.at, 0
	for ; p.at < len(p.s); p.at++ {
		switch c := p.s[p.at]; {
		case c == '<':
			open++
		case c == '>' && open > 0:
			open--
		case open > 0, c == '_', c == '$', c == '~', c >= 0x80, c >= '0' && c <= '9', c|0x20 >= 'a' && c|0x20 <= 'z':
		case c == ':' && p.at+2 < len(p.s) && p.s[p.at+1] == ':':
			p.at++
		default:
			return p.s[from:p.at]
		}
	}
	return p.s[from:p.at]
}

func (p *parser) primary() (value, error) {
	if p.peek() == '(' {
		p.at++
		v, err := p.unary()
		if err == nil && p.peek() != ')' {
			return v, fmt.Errorf("%s: %w", p.s, errSyntax)
		}
		p.at++
		return v, err
	}
	name := p.word()
	switch {
	case name == "":
		return value{}, fmt.Errorf("%s: %w", p.s, errSyntax)
	case name == "$retval":
		return p.f.result()
	case strings.HasPrefix(name, "$retval"):
		n, ok := resultNumber(name)
		if !ok {
			return value{}, fmt.Errorf("%s: %w", name, errSyntax)
		}
		if !p.f.isGoFunc() {
			return value{}, noValueError(name + ": a function has one result, other than in Go")
		}
		return p.f.goResult(n)
	case strings.HasPrefix(name, "$arg"):
		n, err := strconv.Atoi(name[4:])
		if p.f.scope.site.NamedAs().USDT != nil {
			return p.f.noted(name, n)
		}
		params := p.f.visible(fetch.WhichParams)
		if err != nil || n < 1 || n > len(params) {
			return value{}, &NotFoundError{Name: name, Where: p.f.scope.site.Name(), Have: p.f.names()}
		}
		return p.f.load(params[n-1])
	}
	v, err := p.f.named(name)
	var missing *NotFoundError
	if errors.As(err, &missing) && p.f.isGoFunc() && p.peek() == '.' {
		from := p.at // PACKAGE.NAME
		p.at++
		if e, ok := p.f.data.FindVariable(name+"."+p.word(), p.f.fn.Unit()); ok {
			return p.f.load(e)
		}
		p.at = from
	}
	return v, err
}

// packageName returns the path of a Go function's package.
func (f *frame) packageName() (string, bool) {
	if !f.isGoFunc() {
		return "", false
	}
	name := f.meant().Name()
	slash := strings.LastIndexByte(name, '/') + 1
	dot := strings.IndexByte(name[slash:], '.')
	if dot < 0 {
		return "", false
	}
	return name[:slash+dot], true
}

// named finds a variable, or a member of *this, which hides variables outside of functions.
// Variables that the code sees come first. The last ones are those of functions that the code
// is inlined into, which it doesn't see.
func (f *frame) named(name string) (value, error) {
	seen, within := f.seen()
	if e, ok := f.nameIn(seen, name); ok {
		return f.load(e)
	}
	if this, ok := f.nameIn(seen, "this"); ok {
		if v, err := f.load(this); err == nil {
			if m, err := v.field(name); err == nil || errors.Is(err, fetch.ErrNoValue) {
				return m, err
			}
		}
	}
	if f.dropped(name) {
		return value{}, fmt.Errorf("%s: %w", name, f.optimizedOut(nil))
	}
	if e, ok := f.outside(name); ok {
		if err := f.elsewhere(&e); err != nil {
			return value{}, err
		}
		return f.load(e)
	}
	if pkg, ok := f.packageName(); ok {
		if e, ok := f.data.FindVariable(pkg+"."+name, f.meant().Unit()); ok {
			return f.load(e)
		}
	}
	if e, ok := f.nameIn(f.inlined, name); ok {
		return f.load(e)
	}
	if v, ok := f.ofClass(name); ok {
		return v, nil
	}
	if e, ok := f.nameIn(within, name); ok {
		return f.load(e)
	}
	if f.merged != nil {
		return value{}, f.merged
	}
	where := f.scope.site.Name()
	if f.home < len(f.scopes) {
		where = nameOf(f.scopes[f.home], where)
	}
	return value{}, fmt.Errorf("%w", &NotFoundError{Name: "variable " + name, Where: where, Have: f.names()})
}

// ofClass finds a static member of a class by both names: CLASS::MEMBER.
func (f *frame) ofClass(name string) (value, bool) {
	i := len(name) - 1
	for depth := 0; i > 0 && (depth > 0 || name[i] != ':'); i-- {
		switch name[i] {
		case '>', ')':
			depth++
		case '<', '(':
			depth--
		}
	}
	if i < 2 || name[i-1] != ':' {
		return value{}, false
	}
	class := name[:i-1]
	e, ok := f.data.FindType(class, f.fn.Unit())
	for _, spelled := range [...]string{spaced(class), spaced(asGNU(class))} {
		if !ok && spelled != class {
			e, ok = f.data.FindType(spelled, f.fn.Unit())
		}
	}
	if !ok {
		return value{}, false
	}
	m, _, ok := f.lookup(f.resolve(e.Ref()), name[i+1:], 0)
	if !ok || m.static.Unit() == nil {
		return value{}, false
	}
	v, err := f.staticMember(m.static)
	return v, err == nil
}

// asGNU writes the integer types in a template's name as GCC names them: long int.
func asGNU(name string) string {
	var b strings.Builder
	for at := 0; at < len(name); {
		n := strings.IndexAny(name[at:], "<,>*&")
		if n < 0 {
			n = len(name) - at
		}
		word := name[at : at+n]
		b.WriteString(word)
		if word == "long" || word == "short" || word == "unsigned" {
			b.WriteString(" int")
		}
		if at += n; at < len(name) {
			b.WriteByte(name[at])
			at++
		}
	}
	return b.String()
}

func nameOf(e debuginfo.Entry, other string) string {
	if e.Tag() == dwarf.TagSubprogram || e.Tag() == dwarf.TagInlinedSubroutine {
		if n := e.Name(); n != "" {
			return n
		}
	}
	return other
}
