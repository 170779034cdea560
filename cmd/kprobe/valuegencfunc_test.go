package main

import (
	"fmt"
	"strings"
)

// cFunction is a function that is being written, with what its definitions fetch.
type cFunction struct {
	g        *cGenerator
	name     string
	entry    []cFetch        // what there is at the entry
	setup    strings.Builder // in main
	args     [2][]string     // of two calls
	declared []string        // parameters
}

// cFetch is an argument of a definition and the C expression of the same value.
type cFetch = fetched[genType]

// function writes one function, two calls of it, and the definitions for it.
func (g *cGenerator) function(i int) {
	f := &cFunction{g: g, name: fmt.Sprintf("f%d", i)}
	for k := range 1 + g.IntN(9) {
		f.parameter(i, k)
	}
	variadic := g.IntN(6) == 0
	result := g.typ(2)
	for result.kind == "array" || result.kind == "text" || result.kind == "function" {
		result = g.typ(2)
	}
	nothing := g.IntN(8) == 0
	for k, v := range g.globals {
		if g.IntN(2) == 0 {
			f.entry = append(f.entry, cFetch{fmt.Sprintf("g%d", k), v.name, v.typ, v.name})
			f.members(fmt.Sprintf("gm%d", k), v.name, v.typ, v.name)
		}
	}
	g.body(f, i, result, nothing, variadic)
}

// parameter adds one, with the variables that the calls pass.
func (f *cFunction) parameter(i, k int) {
	g := f.g
	t := g.typ(2)
	name := fmt.Sprintf("p%d", k)
	decl, what, x := "", name, name
	of := t
	switch n := g.IntN(8); {
	case t.kind == "text", t.kind == "array" && n < 4: // which C passes by the address of their first element
		decl = g.of(t, name)
		for c := range f.args {
			of := *t
			if t.kind == "text" {
				of.size++ // its end is what says how long it is
			}
			f.args[c] = append(f.args[c], f.variable(i, k, c, &of, g.value(t, 0)))
		}
		elem := t.elem
		if t.kind == "text" {
			f.entry = append(f.entry, cFetch{name, name, t, name})
		} else {
			f.entry = append(f.entry, cFetch{name, "*" + name, elem, name + "[0]"})
		}
		f.declared = append(f.declared, decl)
		return
	case t.kind == "array" || n == 0 || n == 1 && t.kind == "struct": // by a pointer, of C++ by a reference
		if g.cxx && g.IntN(2) == 0 {
			decl = g.of(t, "(&"+name+")")
			if t.kind != "array" {
				decl = g.of(t, "&"+name)
			}
			for c := range f.args {
				f.args[c] = append(f.args[c], f.argument(i, k, c, t))
			}
			break
		}
		star := "*"
		if !g.cxx && g.IntN(3) == 0 {
			star = "*restrict "
		}
		decl = g.of(t, star+name)
		if t.kind == "array" {
			decl = g.of(t, "("+star+name+")")
		}
		what, x = "*"+name, "(*"+name+")"
		for c := range f.args {
			f.args[c] = append(f.args[c], "&"+f.argument(i, k, c, t))
		}
	default:
		decl = g.of(t, name)
		if g.IntN(6) == 0 && t.kind != "pointer" && t.kind != "function" {
			decl = g.oneOf("const ", "volatile ", "register ") + decl
			if g.cxx || t.kind == "struct" || t.kind == "union" {
				decl = strings.TrimPrefix(decl, "register ")
			}
		}
		for c := range f.args {
			f.args[c] = append(f.args[c], f.argument(i, k, c, t))
		}
	}
	f.declared = append(f.declared, decl)
	f.entry = append(f.entry, cFetch{name, what, of, x})
	path := name
	if what != name {
		path = "(" + what + ")"
	}
	f.members("q"+name, path, t, x)
}

// members adds a member or element of a value by its path.
func (f *cFunction) members(as, what string, t *genType, x string) {
	g := f.g
	deep := 0
	for t.kind == "struct" || t.kind == "union" || t.kind == "array" {
		if deep > 0 && g.IntN(4) == 0 {
			break
		}
		deep++
		if t.kind == "array" {
			n := fmt.Sprintf("[%d]", g.IntN(t.size))
			what, x, t = what+n, x+n, t.elem
			continue
		}
		m := t.fields[g.IntN(len(t.fields))]
		switch {
		case m.name == "" && m.width == 0:
			t = m.typ // its members are there by their names
			continue
		case m.name == "":
			return
		}
		if strings.HasPrefix(what, "(*") && strings.HasSuffix(what, ")") {
			what = what[2:len(what)-1] + "->" + m.name
		} else {
			what += "." + m.name
		}
		x, t = x+"."+m.name, m.typ
	}
	if deep > 0 && !strings.HasPrefix(what, "(*") && t.kind != "struct" && t.kind != "union" {
		f.entry = append(f.entry, cFetch{as, what, t, x})
	}
}

// argument is a variable of main with a value of a type.
func (f *cFunction) argument(i, k, call int, t *genType) string {
	return f.variable(i, k, call, t, f.g.value(t, 0))
}

func (f *cFunction) variable(i, k, call int, t *genType, value string) string {
	v := fmt.Sprintf("v%d_%d_%d", i, k, call)
	static := ""
	if f.g.IntN(3) == 0 {
		static = "static "
	}
	fmt.Fprintf(&f.setup, "\t%s%s = %s;\n", static, f.g.of(t, v), value)
	return v
}

// line writes what prints an event and its values.
func (g *cGenerator) line(w *strings.Builder, event string, list []cFetch) {
	fmt.Fprintf(w, "\tprintf(\"=%s {\");\n", event)
	first := true
	for _, a := range list {
		g.key(w, a.as, &first)
		g.show(w, a.typ, a.x)
	}
	fmt.Fprintf(w, "\tputs(\"}\");\n")
}

// filter is a condition on one of the values, in C too.
func (f *cFunction) filter() (filter, condition string, ok bool) {
	for _, a := range f.entry {
		switch {
		case a.typ.kind == "int":
			op := f.g.oneOf("<", ">=", "==", "!=")
			v := f.g.generator.value(a.typ, 0)
			plain := strings.TrimRight(v, "UL")
			return " if " + a.as + " " + op + " " + plain, a.x + " " + op + " " + v, true
		case a.typ.kind == "enum":
			c := a.typ.names[f.g.IntN(len(a.typ.names))]
			name := c.name
			if a.typ.attribute == "class" {
				name = a.typ.name + "::" + name
			}
			return " if " + a.as + " == " + c.name, a.x + " == " + name, true
		case a.typ.kind == "bool":
			return " if " + a.as + " == 1", a.x, true
		case a.typ.kind == "text" && a.typ.size > 2:
			return " if " + a.as + " ~ \"a*\"", a.x + "[0] == 'a'", true
		}
	}
	return "", "", false
}

// body writes the function.
func (g *cGenerator) body(f *cFunction, i int, result *genType, nothing, variadic bool) {
	var w strings.Builder
	how := g.oneOf("__attribute__((noinline, noclone, noipa)) ", "__attribute__((noinline)) ", "static __attribute__((noinline)) ")
	params := strings.Join(f.declared, ", ")
	more := ""
	if variadic {
		params, more = params+", ...", ", 1, 2.5, \"three\""
	}
	head := g.of(result, f.name+"("+params+")")
	if result.kind == "pointer" && result.spelled == "" {
		head = result.quals + g.of(result.elem, "*"+f.name+"("+params+")")
	}
	value := g.value(result, 0)
	if nothing {
		head = "void " + f.name + "(" + params + ")"
	}
	// Locals and what they are made of are declared before the function.
	type local struct {
		genVariable
		how, value string
	}
	var locals []local
	for k := range g.IntN(4) {
		t := g.typ(1)
		locals = append(locals, local{genVariable{fmt.Sprintf("l%d", k), t}, g.oneOf("", "", "static ", "volatile "), g.value(t, 0)})
		if l := &locals[k]; l.how == "volatile " && t.kind != "int" {
			l.how = ""
		}
	}
	g.flush()

	fmt.Fprintf(&w, "%s%s\n{\n", how, head)
	g.line(&w, fmt.Sprintf("e%d", i), f.entry)
	if _, v, ok := f.all(); ok {
		g.line(&w, fmt.Sprintf("a%d", i), v)
	}
	if filter, condition, ok := f.filter(); ok {
		fmt.Fprintf(&w, "\tif (%s) {\n", condition)
		g.line(&w, fmt.Sprintf("x%d", i), f.entry)
		fmt.Fprintf(&w, "\t}\n")
		define(&g.programText, fmt.Sprintf("p:x%d %s", i, f.name), f.entry, filter)
	}
	// What lies behind addresses is changed, and a return probe sees that.
	for _, a := range f.entry {
		if a.typ.kind == "int" && strings.HasPrefix(a.x, "(*p") && strings.HasSuffix(a.x, ")") && !strings.Contains(a.x, ".") && !strings.Contains(g.of(a.typ, ""), "const") {
			fmt.Fprintf(&w, "\t%s ^= 5;\n", a.x)
		}
	}
	if !nothing {
		fmt.Fprintf(&w, "\t%s%s = %s;\n", g.oneOf("static ", ""), g.of(result, "r"), value)
		back := []cFetch{{"r", "$retval", result, "r"}}
		for _, a := range f.entry {
			if g.IntN(3) == 0 {
				back = append(back, a)
			}
		}
		g.line(&w, fmt.Sprintf("r%d", i), back)
		define(&g.programText, fmt.Sprintf("r:r%d %s", i, f.name), back, "")
	}
	var seen []cFetch
	for _, l := range locals {
		fmt.Fprintf(&w, "\t%s%s = %s;\n", l.how, g.of(l.typ, l.name), l.value)
		seen = append(seen, cFetch{l.name, l.name, l.typ, l.name})
	}
	if len(locals) > 0 {
		loop := g.IntN(2) == 0
		if loop {
			fmt.Fprintf(&w, "#pragma GCC unroll 1\n\tfor (int round = 0; round < 3; round++) {\n")
			seen = append(seen, cFetch{"round", "round", &genType{kind: "int", size: 4, signed: true}, "round"})
		}
		if g.IntN(3) == 0 && !loop {
			fmt.Fprintf(&w, "\tint vn = 2 + sizeof(int) %% 3 * (f_zero + %d);\n\tint vla[vn];\n\tfor (int n = 0; n < vn; n++)\n\t\tvla[n] = n * 7;\n", g.IntN(3))
			size := &genType{kind: "int", size: 4, signed: true}
			seen = append(seen, cFetch{"vn", "vn", size, "vn"}, cFetch{"vla", "vla", &genType{kind: "vla", elem: size}, "vla"})
		}
		g.line(&w, fmt.Sprintf("l%d", i), seen)
		g.put(w.String())
		w.Reset()
		g.defs = append(g.defs, fmt.Sprintf("p:l%d FILE:%d $locals", i, g.lines+1))
		fmt.Fprintf(&w, "\tmark(%d);\n", i)
		for _, l := range locals {
			if l.typ.kind == "int" && g.IntN(2) == 0 && !strings.Contains(g.of(l.typ, ""), "const") {
				fmt.Fprintf(&w, "\t%s += 3;\n", l.name)
			}
			if g.IntN(2) == 0 {
				fmt.Fprintf(&w, "\t__asm__ volatile(\"\" : : \"m\"(%s));\n", l.name)
			}
		}
		if loop {
			fmt.Fprintf(&w, "\t}\n")
		}
	}
	// Parameters change, and a return probe still has what was passed.
	for k, a := range f.entry {
		if a.typ.kind == "int" && a.what == a.as && strings.HasPrefix(a.as, "p") && !strings.Contains(f.declaredAs(a.as), "const") && !strings.Contains(f.declaredAs(a.as), "&") {
			fmt.Fprintf(&w, "\t%s ^= %d;\n\t__asm__ volatile(\"\" : : \"r\"((int)%s));\n", a.x, 1+k, a.x)
		}
	}
	if nothing {
		fmt.Fprintf(&w, "}\n")
	} else {
		fmt.Fprintf(&w, "\treturn r;\n}\n")
	}
	g.put(w.String())
	define(&g.programText, fmt.Sprintf("p:e%d %s", i, f.name), f.entry, "")
	if what, _, ok := f.all(); ok {
		g.defs = append(g.defs, fmt.Sprintf("%s:a%d %s%s", what, i, f.name, map[string]string{"p": " $params"}[what]))
	}
	g.main.WriteString(f.setup.String())
	for _, args := range f.args {
		fmt.Fprintf(&g.main, "\t%s(%s%s);\n", f.name, strings.Join(args, ", "), more)
	}
}

// declaredAs is the declaration of a parameter.
func (f *cFunction) declaredAs(name string) string {
	for _, d := range f.declared {
		if strings.HasSuffix(d, name) {
			return d
		}
	}
	return ""
}

// all is every parameter, for $params and j: scalars and structures as they are, as
// what addresses lead to is not fetched by these.
func (f *cFunction) all() (kind string, values []cFetch, ok bool) {
	for _, a := range f.entry {
		if a.as == a.what && strings.HasPrefix(a.as, "p") && a.typ.kind != "text" && !strings.Contains(f.declaredAs(a.as), "&") {
			values = append(values, a)
		}
	}
	kind = map[bool]string{true: "p", false: "j"}[len(f.entry)%2 == 0]
	return kind, values, len(values) > 0
}
