package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// value is a random value as an expression.
func (g *goGenerator) value(t *goType) string {
	conv := func(s string) string { return t.spelled + "(" + s + ")" }
	elems := func(n int) string {
		var list []string
		for range n {
			list = append(list, g.value(t.elem))
		}
		return t.spelled + "{" + strings.Join(list, ", ") + "}"
	}
	switch t.kind {
	case "int":
		v := g.Uint64() >> g.IntN(64)
		if t.signed {
			return conv(fmt.Sprint(int64(v<<(64-t.size)) >> (64 - t.size)))
		}
		return conv(fmt.Sprint(v << (64 - t.size) >> (64 - t.size)))
	case "float":
		return conv(fmt.Sprintf("%.3f", float64(g.IntN(20000)-10000)/8))
	case "complex":
		return conv(fmt.Sprintf("%.3f%+.3fi", float64(g.IntN(2000)-1000)/8, float64(g.IntN(2000)-1000)/8))
	case "bool":
		return conv(g.oneOf("true", "false"))
	case "string":
		out := ""
		for range g.IntN(12) {
			out += g.oneOf("a", "B", " ", "\\n", "\\\\", "\\\"", "z", "9", "\\x01", "~", "é", "\\U0001F600")
		}
		return conv(`"` + out + `"`)
	case "unsafe":
		return g.oneOf("unsafe.Pointer(nil)", "unsafe.Pointer(&"+g.pointee(&goType{kind: "int", spelled: "int", size: 64, signed: true})+")")
	case "func":
		return conv(g.oneOf("nil", "callMe", "callIt"))
	case "time":
		return fmt.Sprintf("time.Unix(%d, %d)", g.IntN(1<<33), g.IntN(1e9))
	case "array":
		return elems(t.size)
	case "slice":
		if g.IntN(6) == 0 {
			return conv("nil")
		}
		return elems(g.IntN(6))
	case "map":
		switch g.IntN(4) {
		case 0:
			return conv("nil")
		case 1:
			return t.spelled + "{}"
		}
		if t.key.kind == "string" {
			list := ""
			for i := range g.IntN(20) {
				list += fmt.Sprintf("\"k%d\": %s, ", i, g.value(t.elem))
			}
			return t.spelled + "{" + list + "}"
		}
		return t.spelled + "{" + g.value(t.key) + ": " + g.value(t.elem) + "}"
	case "pointer":
		if g.IntN(5) == 0 {
			return "(" + t.spelled + ")(nil)"
		}
		return "&" + g.pointee(t.elem)
	case "any":
		if g.IntN(5) == 0 {
			return "any(nil)"
		}
		return "any(" + g.value(g.typ(t.size-1)) + ")"
	case "doer":
		if g.IntN(5) == 0 {
			return "doer(nil)"
		}
		of := g.structure(max(t.size-1, 1))
		v := g.value(of)
		if g.IntN(2) == 0 {
			return "doer(&" + g.pointee(of) + ")"
		}
		return "doer(" + v + ")"
	case "error":
		return "error(" + g.oneOf("nil", `errors.New("bad")`, `fmt.Errorf("outer: %w", fs.ErrExist)`, "syscall.EINVAL", `&os.SyscallError{Syscall: "open", Err: syscall.ENOENT}`,
			`errors.Join(fs.ErrClosed, syscall.EPERM)`) + ")"
	case "chan":
		if g.IntN(4) == 0 {
			return conv("nil")
		}
		return fmt.Sprintf("func() %s { c := make(%s, 4); for range %d { c <- %s }; return c }()", t.spelled, t.spelled, g.IntN(5), g.value(t.elem))
	}
	var list []string
	for _, f := range t.fields {
		if f.typ != nil {
			name, _, _ := strings.Cut(f.name, "[")
			list = append(list, name+": "+g.value(f.typ))
		}
	}
	return t.spelled + "{" + strings.Join(list, ", ") + "}"
}

// pointee is a variable of the program for pointers to lead to: those on stacks move.
func (g *goGenerator) pointee(t *goType) string {
	name := g.name("to")
	fmt.Fprintf(&g.types, "var %s %s = %s\n", name, t.spelled, g.value(t))
	return name
}

// goFetch is an argument of a definition and the Go expression of the same value.
type goFetch = fetched[goType]

// generateGo makes a program in Go of so many functions, and the definitions for it.
func generateGo(seed uint64, functions int) (source string, defs []string) {
	g := &goGenerator{programText{Rand: rand.New(rand.NewPCG(seed, 312))}}
	g.put(goPrelude)
	for i := range functions {
		g.function(i)
	}
	g.put("func main() {\n" + g.main.String() + "}\n")
	return g.source.String(), g.defs
}

// line writes what prints an event and its values.
func (g *goGenerator) line(w *strings.Builder, event string, list []goFetch) {
	fmt.Fprintf(w, "\tsay(%q", event)
	for _, a := range list {
		fmt.Fprintf(w, ", %q, box[%s]{%s}", a.as, a.typ.spelled, a.x)
	}
	fmt.Fprintf(w, ")\n")
}

// member is a part of a value by its path; what is embedded by its own name, or without.
func (g *goGenerator) member(a goFetch) (goFetch, bool) {
	deep := 0
	for ; a.typ.kind == "struct" && len(a.typ.fields) > 0 || a.typ.kind == "array" && a.typ.size > 0; deep++ {
		if a.typ.kind == "array" {
			n := fmt.Sprintf("[%d]", g.IntN(a.typ.size))
			a.what, a.x, a.typ = a.what+n, a.x+n, a.typ.elem
			continue
		}
		f := a.typ.fields[g.IntN(len(a.typ.fields))]
		if f.typ == nil {
			break
		}
		if a.typ = f.typ; f.embedded && g.IntN(2) == 0 {
			continue
		}
		a.what, a.x = a.what+"."+f.name, a.x+"."+f.name
	}
	a.as = "q" + a.as
	return a, deep > 0 && a.what != a.as[1:] && a.typ.kind != "struct" && a.typ.kind != "array"
}

// function writes one function, two calls of it, and the definitions for it.
func (g *goGenerator) function(i int) {
	name := fmt.Sprintf("f%d", i)
	place, head, call, tail := "main."+name, "func "+name, name, ""
	var params []string
	var entry []goFetch
	var args [2][]string
	setup := &g.main
	for k := range 1 + g.IntN(8) {
		t, p := g.typ(2), fmt.Sprintf("p%d", k)
		for t.kind == "error" && k == 0 {
			t = g.typ(2)
		}
		spelled := t.spelled
		if k == 0 {
			switch how := g.IntN(5); {
			case how == 0 && t.named && !strings.Contains(spelled, "[") && t.kind != "any": // a method
				head, place, call = fmt.Sprintf("func (p0 %s) %s", spelled, name), "main."+spelled+"."+name, ""
			case how == 1: // of a type parameter
				head, place, spelled = "func "+name+"[T any]", "main."+name+"[...]", "T"
			}
		}
		if k > 0 || call != "" {
			params = append(params, p+" "+spelled)
		}
		entry = append(entry, goFetch{p, p, t, p})
		if spelled == "T" {
			entry[k].typ = &goType{kind: "param", spelled: "T"}
		}
		for c := range args {
			v := fmt.Sprintf("v%d_%d_%d", i, k, c)
			fmt.Fprintf(setup, "\tvar %s %s = %s\n", v, t.spelled, g.value(t))
			args[c] = append(args[c], v)
		}
	}
	for _, a := range entry {
		if m, ok := g.member(a); ok {
			entry = append(entry, m)
		}
	}
	var results []string
	var back []goFetch
	var values []string
	named := g.IntN(2) == 0
	for k := range g.IntN(4) {
		t, r := g.typ(2), fmt.Sprintf("r%d", k)
		what := fmt.Sprintf("$retval%d", k+1)
		if named && g.IntN(2) == 0 {
			what = r
		}
		results = append(results, r+" "+t.spelled)
		values = append(values, g.value(t))
		back = append(back, goFetch{r, what, t, r})
	}
	var w strings.Builder
	var seen []goFetch
	for k := range g.IntN(4) {
		t, l := g.typ(1), fmt.Sprintf("l%d", k)
		fmt.Fprintf(&w, "\tvar %s %s = %s\n", l, t.spelled, g.value(t))
		seen = append(seen, goFetch{l, l, t, l})
	}
	closure := g.IntN(3) == 0 && len(seen) > 0
	locals := w.String()
	w.Reset()
	g.flush()

	fmt.Fprintf(&w, "//go:noinline\n%s(%s) (%s) {\n", head, strings.Join(params, ", "), strings.Join(results, ", "))
	g.line(&w, fmt.Sprintf("e%d", i), entry)
	define(&g.programText, fmt.Sprintf("p:e%d %s", i, place), entry, deepValues)
	w.WriteString(locals)
	if closure { // which has the function's variables
		w.WriteString("\tfunc() {\n")
		tail = "\t}()\n"
	}
	if len(seen) > 0 {
		g.line(&w, fmt.Sprintf("l%d", i), seen)
		g.put(w.String())
		w.Reset()
		g.defs = append(g.defs, fmt.Sprintf("p:l%d FILE:%d %s"+deepValues, i, g.lines+1, map[bool]string{true: "$vars", false: "$locals"}[closure]))
		fmt.Fprintf(&w, "\tmark(%d)\n", i)
		for _, l := range seen {
			fmt.Fprintf(&w, "\tkept = &%s\n", l.x)
			if g.IntN(2) == 0 {
				break
			}
		}
	}
	w.WriteString(tail)
	for _, l := range seen {
		fmt.Fprintf(&w, "\t_ = %s\n", l.x)
	}
	for k, v := range values {
		fmt.Fprintf(&w, "\tr%d = %s\n", k, v)
	}
	if len(back) > 0 {
		g.line(&w, fmt.Sprintf("r%d", i), back)
		define(&g.programText, fmt.Sprintf("r:r%d %s", i, place), back, deepValues)
	}
	fmt.Fprintf(&w, "\treturn\n}\n\n")
	g.put(w.String())
	for c := range args {
		if call == "" {
			fmt.Fprintf(setup, "\t%s.%s(%s)\n", args[c][0], name, strings.Join(args[c][1:], ", "))
		} else {
			fmt.Fprintf(setup, "\t%s(%s)\n", name, strings.Join(args[c], ", "))
		}
	}
}
