package probe

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"kprobe/fetch"
)

// Jprobe is a probe at the entry of a function that calls a Go function with the
// function's arguments: the kernel's struct jprobe. The handlers of the Kprobe
// must be nil, but for FaultHandler.
//
// Entry is a func with the parameters of the probed function, of which it may
// leave out the last ones:
//
//	bool, int8 … int64, int, uint8 … uint64, uint, uintptr, symbols.Addr   integers, pointers
//	float32, float64        as float and double
//	string                  a char *; its text, at most 4096 bytes of it
//	*string                 the same, nil where there is nothing to read
//	*T                      what a pointer points to; nil where it can't be read
//
// T is a number, an array or a struct of such, laid out as C lays it out: all
// fields exported or named _, at most 2048 bytes. A pointer inside is a uintptr.
// A hit with a text that can't be read calls nothing, and is counted in
// Stats.Lost: take a *string where NULL may come.
//
// Entry is called when the reader has come to the hit: by Run, from one
// goroutine, in order of time, some milliseconds after the hit. The values are
// those of the hit. The probe stays a jump where it can be one. As its first
// parameter Entry may take a *Hit, which is valid until it returns.
//
// If its first parameter is a *Regs, Entry is called with the thread stopped, as
// a PreHandler: what is said there holds. It may then have a result, a bool: true
// skips the instruction.
//
// The parameters are found by debug information; without it by the calling
// convention.
type Jprobe struct {
	Kprobe
	Entry any
}

// SignatureError says what in the signature of a Jprobe's Entry can't be.
type SignatureError struct {
	Type   reflect.Type // of Entry; nil: there is none
	Param  int          // which parameter, from 1; 0: it isn't one
	Reason string
}

func (e *SignatureError) Error() string {
	switch {
	case e.Type == nil:
		return "Entry: " + e.Reason
	case e.Param == 0 || e.Param > e.Type.NumIn():
		return fmt.Sprintf("Entry %v: %s", e.Type, e.Reason)
	}
	return fmt.Sprintf("Entry %v: parameter %d (%v): %s", e.Type, e.Param, e.Type.In(e.Param-1), e.Reason)
}

// call is a Jprobe's function with what it takes.
type call struct {
	fn     reflect.Value
	hit    bool // its first parameter is a *Hit
	regs   bool // its first parameter is a *Regs
	params []param
	// abi defines the arguments by the calling convention, for functions without
	// debug information, where the definition counts them as the source does;
	// nil if both are the same.
	abi *fetch.Def
}

// param is one parameter and the values that it is made of.
type param struct {
	t      reflect.Type
	values int
	sizes  []int // of a pointer's values, in bytes
}

// maxPointee bounds what is read behind a pointer; all the values of a hit have
// room for fetch.MaxFixed bytes.
const maxPointee = 2048

func (p *Jprobe) register() (*registered, error) {
	if p.PreHandler != nil {
		return nil, &InvalidProbeError{"PreHandler", "a Jprobe has Entry: register a Kprobe beside it"}
	}
	c, args, abi, err := parseCall(p.Entry)
	if err != nil {
		return nil, err
	}
	d, err := p.define("p", args)
	if err == nil && abi != args {
		c.abi, err = p.define("p", abi)
	}
	if err != nil {
		return nil, err
	}
	return &registered{probe: p, kp: &p.Kprobe, def: d, call: c, sync: c.regs || p.FaultHandler != nil}, nil
}

// parseCall reads the signature of a function, and gives the arguments that
// fetch its parameters: as the source counts them, and by the calling
// convention.
func parseCall(entry any) (c *call, args, abi string, err error) {
	fn := reflect.ValueOf(entry)
	if entry == nil || fn.Kind() != reflect.Func || fn.IsNil() {
		return nil, "", "", &SignatureError{Reason: fmt.Sprintf("%T is no function", entry)}
	}
	t := fn.Type()
	bad := func(i int, format string, a ...any) error {
		return &SignatureError{Type: t, Param: i, Reason: fmt.Sprintf(format, a...)}
	}
	c = &call{fn: fn}
	first := 0
	if t.NumIn() > 0 {
		c.hit, c.regs = t.In(0) == reflect.TypeFor[*Hit](), t.In(0) == reflect.TypeFor[*Regs]()
	}
	if c.hit || c.regs {
		first = 1
	}
	switch {
	case t.IsVariadic():
		return nil, "", "", bad(t.NumIn(), "a call's number of arguments can't be seen: name the parameters that are wanted")
	case t.NumOut() > 1 || t.NumOut() == 1 && t.Out(0).Kind() != reflect.Bool:
		return nil, "", "", bad(0, "it can have one result, a bool")
	case t.NumOut() == 1 && !c.regs:
		return nil, "", "", bad(0, "only with a *Regs as the first parameter can it have a result")
	}
	var source, plain strings.Builder
	ints, floats := 0, 0
	for i := first; i < t.NumIn(); i++ {
		p, forms, reason := paramOf(t.In(i))
		if reason != "" {
			return nil, "", "", bad(i+1, "%s", reason)
		}
		reg := ""
		if k := p.t.Kind(); k == reflect.Float32 || k == reflect.Float64 {
			floats++
			reg = fmt.Sprintf("$farg%d", floats)
		} else {
			ints++
			reg = fmt.Sprintf("$arg%d", ints)
		}
		if floats > 8 {
			return nil, "", "", bad(i+1, "only 8 floating-point parameters are in registers")
		}
		for k, form := range forms {
			fmt.Fprintf(&source, " p%d_%d=%s", i, k, fmt.Sprintf(form, fmt.Sprintf("$arg%d", i+1-first)))
			fmt.Fprintf(&plain, " p%d_%d=%s", i, k, fmt.Sprintf(form, reg))
		}
		c.params = append(c.params, p)
	}
	return c, source.String(), plain.String(), nil
}

// paramOf says how a parameter is fetched: one or more forms with %s for the
// argument, or the reason why it can't be.
func paramOf(t reflect.Type) (p param, forms []string, reason string) {
	p = param{t: t, values: 1}
	if f := numberType(t); f != "" {
		return p, []string{"%s:" + f}, ""
	}
	switch t.Kind() {
	case reflect.String:
		return p, []string{"+0(%s):string"}, ""
	case reflect.Slice, reflect.Array:
		return p, nil, "C passes an array by its address: take a pointer to an array, *[N]T"
	case reflect.Struct:
		return p, nil, "a struct that is passed by value lies in several registers: take its parts, or a pointer where the function has one"
	case reflect.Pointer:
	default:
		return p, nil, "C has no such type"
	}
	e := t.Elem()
	if e.Kind() == reflect.String {
		return p, []string{"+0(%s):string"}, ""
	}
	if reason := plainData(e); reason != "" {
		return p, nil, reason
	}
	size := int(e.Size())
	switch {
	case size == 0:
		return p, nil, "it points to nothing: take a uintptr"
	case size > maxPointee:
		return p, nil, fmt.Sprintf("it points to %d bytes, and at most %d are read", size, maxPointee)
	}
	for at := 0; at < size; {
		n, typ := size-at, "x8"
		if n >= 8 {
			n, typ = min(n/8, fetch.MaxArray)*8, "x64"
			p.sizes = append(p.sizes, 8)
			forms = append(forms, fmt.Sprintf("+%d(%%s):%s[%d]", at, typ, n/8))
		} else {
			p.sizes = append(p.sizes, 1)
			forms = append(forms, fmt.Sprintf("+%d(%%s):%s[%d]", at, typ, n))
		}
		at += n
	}
	p.values = len(forms)
	return p, forms, ""
}

// numberType is the definition language's type of a number; "" for others.
func numberType(t reflect.Type) string {
	bits := 8 * int(t.Size())
	switch t.Kind() {
	case reflect.Bool:
		return "u8"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return fmt.Sprintf("s%d", bits)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return fmt.Sprintf("u%d", bits)
	case reflect.Float32, reflect.Float64:
		return fmt.Sprintf("f%d", bits)
	}
	return ""
}

// plainData says why memory can't be read as a t; "" if it can.
func plainData(t reflect.Type) string {
	switch {
	case numberType(t) != "":
		return ""
	case t.Kind() == reflect.Array:
		return plainData(t.Elem())
	case t.Kind() != reflect.Struct:
		return fmt.Sprintf("%v is no number, array or struct: a pointer inside is a uintptr", t)
	}
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Name == "_" {
			continue
		}
		if !f.IsExported() {
			return fmt.Sprintf("field %s of %v is not exported", f.Name, t)
		}
		if why := plainData(f.Type); why != "" {
			return fmt.Sprintf("field %s: %s", f.Name, why)
		}
	}
	return ""
}

// form chooses the definition that fetches the parameters at a place. u may be
// nil.
func (u *registered) form(d *fetch.Def, e *env) (*fetch.Def, error) {
	if u == nil || u.call == nil {
		return d, nil
	}
	if !e.AtEntry() {
		return nil, &RefusedError{Addr: e.site.Addr, Place: e.site.Name, Rule: "a jprobe needs a function's entry"}
	}
	if u.call.abi == nil {
		return d, nil
	}
	// ErrNoValue is of a parameter that is known.
	if _, err := e.Argument(1); err != nil && !errors.Is(err, fetch.ErrNoValue) {
		return u.call.abi, nil
	}
	return d, nil
}
