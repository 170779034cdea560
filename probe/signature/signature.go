// Package signature reads the signature of a Go function as that of a C function, for jprobes.
// It yields the fetch arguments that record a call's parameters, and turns what was recorded
// into the arguments of the Go function. It touches no process.
package signature

import (
	"fmt"
	"reflect"
	"strings"

	"kprobe/fetch"
)

// Func is a Go function with what it takes. It is made by Parse and not changed
// afterwards: its methods may be called by any goroutine.
type Func struct {
	// Source are the fetch arguments of the parameters as the source counts
	// them, $arg1 …, each with a space before it; ABI the same by the calling
	// convention, where integers and floating-point numbers are counted apart,
	// for functions without debug information.
	Source, ABI string

	fn     reflect.Value
	first  reflect.Type // of a parameter that isn't the C function's; nil: none is
	params []param
}

// First is what a function may take before the C function's parameters.
type First struct {
	Type   reflect.Type
	Result bool // a function that takes it may have a result, a bool
}

// param is one parameter and the values that it is made of.
type param struct {
	t      reflect.Type
	values int
	sizes  []int // of a pointer's values: the size of an element, in bytes
}

const (
	// maxPointee bounds what is read behind a pointer, in bytes; all the values
	// of a hit have room for fetch.MaxFixed.
	maxPointee = 2048
	// maxFloats is how many floating-point arguments are in registers (psABI
	// x86-64, 3.2.3).
	maxFloats = 8
)

// Error says what in the signature of a function can't be.
type Error struct {
	Type   reflect.Type // of the function; nil: there is none
	Param  int          // which parameter, from 1; 0: it isn't one
	Reason string
}

func (e *Error) Error() string {
	switch {
	case e.Type == nil:
		return "Entry: " + e.Reason
	case e.Param == 0 || e.Param > e.Type.NumIn():
		return fmt.Sprintf("Entry %v: %s", e.Type, e.Reason)
	}
	return fmt.Sprintf("Entry %v: parameter %d (%v): %s", e.Type, e.Param, e.Type.In(e.Param-1), e.Reason)
}

// Parse reads the signature of a function. Its first parameter may be one of
// firsts; the others are those of a C function, as Jprobe of package probe lists
// them. The error is an *Error.
func Parse(entry any, firsts ...First) (*Func, error) {
	fn := reflect.ValueOf(entry)
	switch {
	case entry == nil || fn.Kind() != reflect.Func:
		return nil, &Error{Reason: fmt.Sprintf("%T is not a function", entry)}
	case fn.IsNil():
		return nil, &Error{Reason: fmt.Sprintf("the %T is nil", entry)}
	}
	t := fn.Type()
	bad := func(i int, format string, a ...any) error {
		return &Error{Type: t, Param: i, Reason: fmt.Sprintf(format, a...)}
	}
	f := &Func{fn: fn}
	result, withResult := false, ""
	for _, x := range firsts {
		if x.Result {
			withResult = x.Type.String()
		}
		if t.NumIn() > 0 && t.In(0) == x.Type {
			f.first, result = x.Type, x.Result
		}
	}
	switch {
	case t.IsVariadic():
		return nil, bad(t.NumIn(), "a call's number of arguments can't be seen: name the parameters that are wanted")
	case t.NumOut() > 1 || t.NumOut() == 1 && t.Out(0).Kind() != reflect.Bool:
		return nil, bad(0, "it can have one result, a bool")
	case t.NumOut() == 1 && !result:
		return nil, bad(0, "only with a %s as the first parameter can it have a result", withResult)
	}
	from := 0
	if f.first != nil {
		from = 1
	}
	var source, abi strings.Builder
	ints, floats := 0, 0
	for i := from; i < t.NumIn(); i++ {
		p, forms, reason := paramOf(t.In(i))
		if reason != "" {
			return nil, bad(i+1, "%s", reason)
		}
		reg := ""
		if k := p.t.Kind(); k == reflect.Float32 || k == reflect.Float64 {
			floats++
			reg = fmt.Sprintf("$farg%d", floats)
		} else {
			ints++
			reg = fmt.Sprintf("$arg%d", ints)
		}
		if floats > maxFloats {
			return nil, bad(i+1, "only %d floating-point parameters are in registers", maxFloats)
		}
		for k, form := range forms {
			fmt.Fprintf(&source, " p%d_%d=%s", i, k, fmt.Sprintf(form, fmt.Sprintf("$arg%d", i+1-from)))
			fmt.Fprintf(&abi, " p%d_%d=%s", i, k, fmt.Sprintf(form, reg))
		}
		f.params = append(f.params, p)
	}
	f.Source, f.ABI = source.String(), abi.String()
	return f, nil
}

// First is the type of the parameter that isn't the C function's; nil where
// there is none.
func (f *Func) First() reflect.Type { return f.first }

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
		elem, n := 8, min((size-at)/8, fetch.MaxArray)
		if n == 0 {
			elem, n = 1, size-at
		}
		p.sizes = append(p.sizes, elem)
		forms = append(forms, fmt.Sprintf("+%d(%%s):x%d[%d]", at, 8*elem, n))
		at += elem * n
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
		return fmt.Sprintf("%v is not a number, array or struct: declare a pointer inside as uintptr", t)
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
