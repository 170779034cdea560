package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// rustFetch is an argument of a definition and the Rust expression of the same value.
type rustFetch = fetched[rustType]

// generateRust makes a program in Rust of so many functions, and the definitions for it.
func generateRust(seed uint64, functions int) (source string, defs []string) {
	g := &rustGenerator{programText{Rand: rand.New(rand.NewPCG(seed, 212))}}
	g.put(rustPrelude)
	for i := range functions {
		g.function(i)
	}
	g.put("fn main() {\n" + g.main.String() + "}\n")
	return g.source.String(), g.defs
}

// line writes what prints an event and its values.
func (g *rustGenerator) line(w *strings.Builder, event string, list []rustFetch) {
	fmt.Fprintf(w, "\t{ let mut o = String::new();\n")
	for i, a := range list {
		fmt.Fprintf(w, "\tlit(&mut o, %q);\n", map[bool]string{true: ","}[i > 0]+`"`+a.as+`":`)
		g.show(w, a.typ, a.x)
	}
	fmt.Fprintf(w, "\tprintln!(\"=%s {{{}}}\", o); }\n", event)
}

// member is a part of a value by its path.
func (g *rustGenerator) member(a rustFetch) (rustFetch, bool) {
	deep := 0
	for ; a.typ.kind == "struct" && len(a.typ.fields) > 0 && !a.typ.packed || a.typ.kind == "array" && a.typ.size > 0; deep++ {
		if a.typ.kind == "array" {
			n := fmt.Sprintf("[%d]", g.IntN(a.typ.size))
			a.what, a.x, a.typ = a.what+n, a.x+n, a.typ.elem
			continue
		}
		f := a.typ.fields[g.IntN(len(a.typ.fields))]
		a.what, a.x, a.typ = a.what+"."+rustMember(f.name), a.x+"."+f.name, f.typ
	}
	a.as = "q" + a.as
	return a, deep > 0
}

// function writes one function, two calls of it, and the definitions for it.
func (g *rustGenerator) function(i int) {
	name, place := fmt.Sprintf("f%d", i), fmt.Sprintf("f%d", i)
	how := "#[no_mangle] #[inline(never)] pub "
	c := false
	switch g.IntN(8) {
	case 0, 1:
		how, place = "#[inline(never)] ", "generated::"+name
	case 2:
		how, c = how+`extern "C" `, true
	case 3:
		how, place, c = `#[inline(never)] extern "C" `, "generated::"+name, true
	}
	unused := g.IntN(5) == 0 // the caller prints what the function has no use for
	of := func() *rustType {
		for {
			if t := g.typ(2); t.c || !c {
				return t
			}
		}
	}
	var params []string
	var entry []rustFetch
	var args [2][]string
	for k := range 1 + g.IntN(8) {
		t, p := of(), fmt.Sprintf("p%d", k)
		params = append(params, p+": "+t.spelled)
		entry = append(entry, rustFetch{p, p, t, p})
		for call := range args {
			v := fmt.Sprintf("v%d_%d_%d", i, k, call)
			fmt.Fprintf(&g.main, "\tlet %s: %s = black_box(%s);\n", v, t.spelled, g.value(t))
			args[call] = append(args[call], v)
		}
	}
	for _, a := range entry {
		if m, ok := g.member(a); ok {
			entry = append(entry, m)
		}
	}
	result := of()
	value := g.value(result)
	type local struct{ name, typ, value string }
	var locals []local
	var seen []rustFetch
	for k := range g.IntN(4) {
		t, l := g.typ(1), fmt.Sprintf("l%d", k)
		for t.kind == "reference" || t.spelled == "&'static String" {
			t = g.scalar() // rustc makes other pointers of references
		}
		locals = append(locals, local{l, t.spelled, g.value(t)})
		seen = append(seen, rustFetch{l, l, t, l})
	}
	g.flush()

	var w strings.Builder
	fmt.Fprintf(&w, "%sfn %s(%s) -> %s {\n", how, name, strings.Join(params, ", "), result.spelled)
	if !unused {
		g.line(&w, fmt.Sprintf("e%d", i), entry)
	}
	define(&g.programText, fmt.Sprintf("p:e%d %s", i, place), entry, deepValues)
	for _, l := range locals {
		fmt.Fprintf(&w, "\tlet %s: %s = %s;\n", l.name, l.typ, l.value)
	}
	if len(locals) > 0 {
		g.line(&w, fmt.Sprintf("l%d", i), seen)
		g.put(w.String())
		w.Reset()
		g.defs = append(g.defs, fmt.Sprintf("p:l%d FILE:%d $locals"+deepValues, i, g.lines+1))
		fmt.Fprintf(&w, "\tmark(%d);\n", i)
		for _, l := range locals {
			fmt.Fprintf(&w, "\tblack_box(&%s);\n", l.name)
		}
	}
	// Parameters of which the function changes its own copy: a return probe has what was passed.
	back := []rustFetch{{"r", "$retval", result, "r"}}
	for _, a := range entry {
		if !unused && a.typ.copied && a.as[0] == 'p' && g.IntN(3) == 0 && (a.typ.kind == "int" || a.typ.kind == "float" || a.typ.kind == "bool" || a.typ.kind == "char") {
			back = append(back, a)
		}
	}
	fmt.Fprintf(&w, "\tlet r: %s = black_box(%s);\n", result.spelled, value)
	g.line(&w, fmt.Sprintf("r%d", i), back)
	define(&g.programText, fmt.Sprintf("r:r%d %s", i, place), back, deepValues)
	fmt.Fprintf(&w, "\tr\n}\n")
	g.put(w.String())
	for call, a := range args {
		if unused {
			passed := slices.Clone(entry)
			for k := range passed {
				p := strings.TrimPrefix(passed[k].as, "q")
				passed[k].x = fmt.Sprintf("v%d_%s_%d", i, p[1:], call) + strings.TrimPrefix(passed[k].x, p)
			}
			g.line(&g.main, fmt.Sprintf("e%d", i), passed)
		}
		fmt.Fprintf(&g.main, "\tblack_box(%s(%s));\n", name, strings.Join(a, ", "))
	}
}
