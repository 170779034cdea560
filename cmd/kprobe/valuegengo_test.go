package main

import (
	"fmt"
	"strings"
)

// goType is a type of a generated program in Go.
type goType struct {
	kind    string // int, float, complex, bool, string, struct, array, slice, map, pointer, any, error, chan, func, unsafe, time
	spelled string
	size    int // of numbers the bits, of arrays the elements
	signed  bool
	elem    *goType
	key     *goType
	fields  []goField
	named   bool // with a method, so that interfaces with one can hold it
}

type goField struct {
	name     string
	typ      *goType
	embedded bool
}

// goGenerator writes programs with what Go has of types, which print of themselves by
// reflection what is at their entries, lines and returns.
type goGenerator struct{ programText }

// goPrelude is what the programs print with.
const goPrelude = `package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

type doer interface{ Do() int }

var _ = []any{errors.New, fs.ErrExist, syscall.EINVAL, time.UTC, unsafe.Pointer(nil), strconv.Itoa}

func float(f float64, bits int) string {
	s := strconv.FormatFloat(f, 'g', -1, bits)
	if strings.ContainsAny(s, "NI") {
		return strconv.Quote(s)
	}
	return s
}

func text(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.Encode(s)
	return strings.TrimSpace(b.String())
}

func show(v reflect.Value, inside bool) string {
	if v.IsValid() && v.Type() == reflect.TypeFor[time.Time]() {
		return text(v.Interface().(time.Time).UTC().Format(time.RFC3339Nano))
	}
	var list []string
	switch v.Kind() {
	case reflect.Invalid:
		return "null"
	case reflect.Bool:
		return strconv.FormatBool(v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return strconv.FormatInt(v.Int(), 10)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return strconv.FormatUint(v.Uint(), 10)
	case reflect.Float32, reflect.Float64:
		return float(v.Float(), v.Type().Bits())
	case reflect.Complex64, reflect.Complex128:
		return fmt.Sprintf("{\"re\":%s,\"im\":%s}", float(real(v.Complex()), v.Type().Bits()/2), float(imag(v.Complex()), v.Type().Bits()/2))
	case reflect.String:
		return text(v.String())
	case reflect.Struct:
		if v.Type().Size() == 0 {
			return "{}"
		}
		for i := range v.NumField() {
			list = append(list, text(v.Type().Field(i).Name)+":"+show(v.Field(i), false))
		}
		return "{" + strings.Join(list, ",") + "}"
	case reflect.Array, reflect.Slice:
		for i := range v.Len() {
			list = append(list, show(v.Index(i), false))
		}
		return "[" + strings.Join(list, ",") + "]"
	case reflect.Map:
		byText := v.Type().Key().Kind() == reflect.String
		for it := v.MapRange(); it.Next(); {
			if byText {
				list = append(list, show(it.Key(), false)+":"+show(it.Value(), false))
			} else {
				list = append(list, "{\"key\":"+show(it.Key(), false)+",\"value\":"+show(it.Value(), false)+"}")
			}
		}
		switch {
		case v.IsNil():
			return "null"
		case byText:
			return "{" + strings.Join(list, ",") + "}"
		}
		return "[" + strings.Join(list, ",") + "]"
	case reflect.Interface:
		if v.IsNil() {
			return "null"
		}
		return "{\"type\":" + text(v.Elem().Type().String()) + ",\"value\":" + show(v.Elem(), true) + "}"
	case reflect.Pointer:
		switch {
		case inside && v.IsNil():
			return "null"
		case inside:
			return show(v.Elem(), false)
		}
		return strconv.FormatUint(uint64(v.Pointer()), 10)
	case reflect.Chan:
		if v.IsNil() {
			return "null"
		}
		for range v.Len() {
			x, _ := v.Recv()
			list = append(list, show(x, false))
			v.Send(x)
		}
		return "[" + strings.Join(list, ",") + "]"
	case reflect.Func:
		x := v.Interface()
		return strconv.FormatUint(uint64((*[2]uintptr)(unsafe.Pointer(&x))[1]), 10)
	case reflect.UnsafePointer:
		return strconv.FormatUint(uint64(v.Pointer()), 10)
	}
	panic(v.Kind())
}

// say takes addresses, as an interface does not tell of one in it.
func say(event string, list ...any) {
	var out []string
	for i := 0; i < len(list); i += 2 {
		v := reflect.ValueOf(list[i+1])
		out = append(out, text(list[i].(string))+":"+show(v.Field(0), false))
	}
	fmt.Fprintf(os.Stdout, "=%s {%s}\n", event, strings.Join(out, ","))
}

type box[T any] struct{ V T }

var kept any

//go:noinline
func mark(n int) {}

func callMe(x int) int { return x + 1 }

var callIt = func(x int) int { return x + len(os.Args) }
`

func (g *goGenerator) number() *goType {
	t := &goType{kind: "int", size: 8 << g.IntN(4), signed: g.IntN(2) == 0}
	t.spelled = map[bool]string{true: "int", false: "uint"}[t.signed] + fmt.Sprint(t.size)
	if t.size == 64 && g.IntN(2) == 0 {
		t.spelled = map[bool]string{true: g.oneOf("int", "time.Duration"), false: g.oneOf("uint", "uintptr")}[t.signed]
	}
	return t
}

func (g *goGenerator) scalar() *goType {
	switch k := g.IntN(16); {
	case k < 5:
		return g.number()
	case k < 7:
		size := 32 << g.IntN(2)
		return &goType{kind: "float", spelled: fmt.Sprintf("float%d", size), size: size}
	case k < 8:
		size := 64 << g.IntN(2)
		return &goType{kind: "complex", spelled: fmt.Sprintf("complex%d", size), size: size}
	case k < 10:
		return &goType{kind: "bool", spelled: "bool"}
	case k < 13:
		return &goType{kind: "string", spelled: "string"}
	case k < 14:
		return &goType{kind: "unsafe", spelled: "unsafe.Pointer"}
	case k < 15:
		return &goType{kind: "func", spelled: "func(int) int"}
	}
	return &goType{kind: "time", spelled: "time.Time"}
}

// alias gives a type a name, and a method.
func (g *goGenerator) alias(t *goType) *goType {
	named := *t
	named.spelled, named.named = g.name("T"), true
	fmt.Fprintf(&g.types, "type %s %s\n\nfunc (v %s) Do() int { return %d }\n", named.spelled, t.spelled, named.spelled, g.n)
	return &named
}

// typ makes a type, types in types up to a depth.
func (g *goGenerator) typ(depth int) *goType {
	if depth == 0 {
		return g.scalar()
	}
	elem := func() *goType { return g.typ(depth - 1) }
	of := func(kind, format string, e *goType) *goType {
		return &goType{kind: kind, spelled: fmt.Sprintf(format, e.spelled), elem: e}
	}
	switch k := g.IntN(24); {
	case k < 6:
		return g.scalar()
	case k < 8:
		t := &goType{kind: "array", size: g.IntN(4), elem: elem()}
		t.spelled = fmt.Sprintf("[%d]%s", t.size, t.elem.spelled)
		return t
	case k < 10:
		return of("slice", "[]%s", elem())
	case k < 12:
		t := &goType{kind: "map", key: g.key(depth), elem: elem()}
		t.spelled = "map[" + t.key.spelled + "]" + t.elem.spelled
		return t
	case k < 13:
		return of("pointer", "*%s", elem())
	case k < 15:
		return &goType{kind: "any", spelled: "any", size: depth}
	case k < 16:
		return &goType{kind: "error", spelled: "error"}
	case k < 17:
		return &goType{kind: "doer", spelled: "doer", size: depth}
	case k < 18:
		return of("chan", "chan %s", elem())
	case k < 19:
		t := elem()
		for t.kind == "pointer" || t.kind == "any" || t.kind == "error" || t.kind == "doer" || t.kind == "time" || t.kind == "unsafe" {
			t = g.scalar() // which can have no methods, or whose printing knows the type
		}
		if t.named {
			return t
		}
		return g.alias(t)
	}
	return g.structure(depth)
}

// key is a type that maps can have for their keys.
func (g *goGenerator) key(depth int) *goType {
	switch g.IntN(5) {
	case 0:
		return g.number()
	case 1:
		t := &goType{kind: "array", size: 2, elem: g.number()}
		t.spelled = "[2]" + t.elem.spelled
		return t
	case 2:
		return g.alias(&goType{kind: "string", spelled: "string"})
	}
	return &goType{kind: "string", spelled: "string"}
}

// structure is a struct, with what is embedded in it and parameters.
func (g *goGenerator) structure(depth int) *goType {
	t := &goType{kind: "struct", spelled: g.name("S"), named: true}
	var list []string
	params, args := "", ""
	for i := range g.IntN(6) {
		f := goField{name: g.name("F"), typ: g.typ(depth - 1)}
		typ := f.typ.spelled
		if isName := f.typ.kind == "struct" && !strings.ContainsAny(typ, "[{"); isName && g.IntN(2) == 0 {
			f.embedded, f.name = true, typ
			list, t.fields = append(list, typ), append(t.fields, f)
			continue
		}
		if g.IntN(5) == 0 {
			typ = fmt.Sprintf("P%d", i)
			params, args = params+typ+" any, ", args+f.typ.spelled+", "
		}
		list, t.fields = append(list, f.name+" "+typ), append(t.fields, f)
	}
	if len(list) > 0 && g.IntN(6) == 0 {
		list = append(list, "_ int16")
		t.fields = append(t.fields, goField{name: "_"})
	}
	if g.IntN(6) == 0 {
		list = append(list, "Z struct{}")
		t.fields = append(t.fields, goField{name: "Z"})
	}
	of := ""
	if params != "" {
		n := strings.Count(params, ",")
		params = "[" + strings.TrimSuffix(params, ", ") + "]"
		of = "[" + strings.TrimSuffix(strings.Repeat("_, ", n), ", ") + "]"
		args = "[" + strings.TrimSuffix(args, ", ") + "]"
	}
	fmt.Fprintf(&g.types, "type %s%s struct {\n\t%s\n}\n\nfunc (v %s%s) Do() int { return %d }\n", t.spelled, params, strings.Join(list, "\n\t"), t.spelled, of, g.n)
	t.spelled += args
	return t
}
