package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// genType is a type of a generated program.
type genType struct {
	kind   string // int, float, bool, enum, text, array, struct, union; in C also char, ldouble, complex, wide, pointer, function
	size   int    // bytes; of a text and an array the number of elements
	signed bool
	name   string // of enums, structures and unions
	fields []genField
	elem   *genType

	attribute string // of a structure
	spelled   string // how C writes it, instead of by its kind and size
	quals     string // of what a pointer leads to
	base      string // of an enumeration of C++, with its colon
	names     []genConstant
}

// genConstant is a member of an enumeration.
type genConstant struct {
	name  string
	value int64
}

type genField struct {
	name  string
	typ   *genType
	width int // of a bitfield, 0: none
}

// genLang is what the languages differ in.
type genLang struct {
	name              string
	bitfields, unions bool
	enums, texts      bool
}

var genLangs = map[string]genLang{
	"c":    {name: "c", bitfields: true, unions: true, enums: true, texts: true},
	"cc":   {name: "cc", bitfields: true, unions: true, enums: true, texts: true},
	"rust": {name: "rust", enums: true},
	"go":   {name: "go"},
}

// generator writes a program that prints the values of its functions' parameters
// and results as they are called.
type generator struct {
	programText
	lang  genLang
	funcs strings.Builder
	more  bool // with what generators of other programs hadn't yet: results, texts, slices, packed structures
}

// generate makes a program of so many functions, and the definitions for it.
func generate(lang string, seed uint64, functions int, more bool) (source string, defs []string) {
	g := &generator{programText: programText{Rand: rand.New(rand.NewPCG(seed, 12))}, lang: genLangs[lang], more: more}
	for i := range functions {
		g.function(i)
	}
	switch lang {
	case "c", "cc":
		return "#include <stdint.h>\n#include <stdbool.h>\n#include <stdio.h>\n" + g.types.String() + g.funcs.String() + "int main(void)\n{\n" + g.main.String() + "\treturn 0;\n}\n", g.defs
	case "rust":
		return "#![allow(dead_code, unused_mut)]\nuse std::hint::black_box;\n" + g.types.String() + g.funcs.String() + "fn main() {\n" + g.main.String() + "}\n", g.defs
	}
	return "package main\n\nimport \"fmt\"\n\n" + g.types.String() + g.funcs.String() + "func main() {\n" + g.main.String() + "}\n", g.defs
}

func (g *generator) scalar() *genType {
	switch k := g.IntN(8); {
	case k < 4:
		return &genType{kind: "int", size: 1 << g.IntN(4), signed: g.IntN(2) == 0}
	case k < 6:
		return &genType{kind: "float", size: 4 << g.IntN(2)}
	case k == 6 && g.lang.enums:
		t := &genType{kind: "enum", size: 4, name: g.name("e")}
		g.declare(t)
		return t
	}
	return &genType{kind: "bool", size: 1}
}

// typ makes a type, structures in structures up to a depth.
func (g *generator) typ(depth int) *genType {
	k := g.IntN(10)
	switch {
	case depth == 0 || k < 5:
		return g.scalar()
	case k == 5 && g.more && !g.isC():
		if g.IntN(2) == 0 {
			return &genType{kind: "string"}
		}
		return &genType{kind: "slice", size: g.IntN(5), elem: g.typ(depth - 1)}
	case k == 5 && g.lang.texts:
		return &genType{kind: "text", size: 1 + g.IntN(20)}
	case k == 6:
		return &genType{kind: "array", size: 1 + g.IntN(4), elem: g.typ(depth - 1)}
	case k == 7 && g.lang.unions:
		t := &genType{kind: "union", name: g.name("u"), fields: []genField{
			{"x", &genType{kind: "int", size: 4, signed: true}, 0},
			{"y", &genType{kind: "int", size: 2}, 0},
			{"z", &genType{kind: "array", size: 4, elem: &genType{kind: "int", size: 1}}, 0}}}
		g.declare(t)
		return t
	}
	t := &genType{kind: "struct", name: g.name("s")}
	for i := range 1 + g.IntN(4) {
		f := genField{name: fmt.Sprintf("m%d", i), typ: g.typ(depth - 1)}
		if g.more && g.lang.bitfields && f.typ.kind == "enum" && g.IntN(3) == 0 {
			f.width = 18 + g.IntN(15)
		}
		if k := f.typ.kind; g.lang.bitfields && (k == "int" || k == "bool") && g.IntN(3) == 0 {
			f.width = 1
			if k == "int" {
				f.width = 1 + g.IntN(f.typ.size*8)
			}
		}
		t.fields = append(t.fields, f)
	}
	if g.more && g.isC() {
		t.attribute = []string{"", "", "", "__attribute__((packed)) ", "__attribute__((packed, aligned(4))) ", "__attribute__((aligned(32))) "}[g.IntN(6)]
	}
	g.declare(t)
	return t
}

// of is the type as the language writes it; C's goes around a name.
func (g *generator) of(t *genType, name string) string {
	sign := map[bool]string{true: "", false: "u"}[t.signed]
	switch g.lang.name {
	case "rust":
		switch t.kind {
		case "int":
			return name + ": " + map[bool]string{true: "i", false: "u"}[t.signed] + fmt.Sprint(t.size*8)
		case "float":
			return name + ": f" + fmt.Sprint(t.size*8)
		case "bool":
			return name + ": bool"
		case "string":
			return name + ": &'static str"
		case "slice":
			return name + ": &'static [" + strings.TrimPrefix(g.of(t.elem, ""), ": ") + "]"
		case "array":
			return name + ": [" + strings.TrimPrefix(g.of(t.elem, ""), ": ") + fmt.Sprintf("; %d]", t.size)
		}
		return name + ": " + strings.ToUpper(t.name)
	case "go":
		switch t.kind {
		case "int":
			return name + " " + sign + "int" + fmt.Sprint(t.size*8)
		case "float":
			return name + " float" + fmt.Sprint(t.size*8)
		case "bool":
			return name + " bool"
		case "string":
			return name + " string"
		case "slice":
			return name + " []" + strings.TrimSpace(g.of(t.elem, ""))
		case "array":
			return name + fmt.Sprintf(" [%d]", t.size) + strings.TrimSpace(g.of(t.elem, ""))
		}
		return name + " " + t.name
	}
	switch t.kind {
	case "int":
		return sign + "int" + fmt.Sprint(t.size*8) + "_t " + name
	case "float":
		return map[int]string{4: "float ", 8: "double "}[t.size] + name
	case "text":
		return fmt.Sprintf("char %s[%d]", name, t.size)
	case "array":
		return g.of(t.elem, fmt.Sprintf("%s[%d]", name, t.size))
	case "bool":
		return "bool " + name
	}
	return t.kind + " " + t.name + " " + name
}

var genEnum = []struct {
	name  string
	value int
}{{"LOW", -3}, {"NONE", 0}, {"MID", 200}, {"HIGH", 70000}}

func (g *generator) declare(t *genType) {
	w := &g.types
	switch {
	case t.kind == "enum" && g.lang.name == "rust":
		fmt.Fprintf(w, "#[derive(Clone, Copy)]\n#[repr(i32)]\nenum %s { ", strings.ToUpper(t.name))
		for _, e := range genEnum {
			fmt.Fprintf(w, "%s = %d, ", e.name, e.value)
		}
		fmt.Fprintf(w, "}\nfn %s_name(v: %s) -> &'static str {\n\tmatch v { ", t.name, strings.ToUpper(t.name))
		for _, e := range genEnum {
			fmt.Fprintf(w, "%s::%s => \"%s\", ", strings.ToUpper(t.name), e.name, e.name)
		}
		fmt.Fprintf(w, "}\n}\n")
	case t.kind == "enum":
		fmt.Fprintf(w, "enum %s { ", t.name)
		for _, e := range genEnum {
			fmt.Fprintf(w, "%s_%s = %d, ", t.name, e.name, e.value)
		}
		fmt.Fprintf(w, "};\nstatic const char *%s_name(enum %s v)\n{\n\tswitch (v) {\n", t.name, t.name)
		for _, e := range genEnum {
			fmt.Fprintf(w, "\tcase %s_%s: return \"%s_%s\";\n", t.name, e.name, t.name, e.name)
		}
		fmt.Fprintf(w, "\t}\n\treturn \"?\";\n}\n")
	case g.lang.name == "rust":
		fmt.Fprintf(w, "#[derive(Clone, Copy)]\nstruct %s {\n", strings.ToUpper(t.name))
		for _, f := range t.fields {
			fmt.Fprintf(w, "\t%s,\n", g.of(f.typ, f.name))
		}
		fmt.Fprintf(w, "}\n")
	case g.lang.name == "go":
		fmt.Fprintf(w, "type %s struct {\n", t.name)
		for _, f := range t.fields {
			fmt.Fprintf(w, "\t%s\n", g.of(f.typ, f.name))
		}
		fmt.Fprintf(w, "}\n\n")
	default:
		fmt.Fprintf(w, "%s %s%s {\n", t.kind, t.attribute, t.name)
		for _, f := range t.fields {
			if f.width > 0 {
				fmt.Fprintf(w, "\t%s: %d;\n", g.of(f.typ, f.name), f.width)
			} else {
				fmt.Fprintf(w, "\t%s;\n", g.of(f.typ, f.name))
			}
		}
		fmt.Fprintf(w, "};\n")
	}
}

// value is a random value as the language writes it.
func (g *generator) value(t *genType, width int) string {
	switch t.kind {
	case "bool":
		return map[bool]string{true: "true", false: "false"}[g.IntN(2) == 0]
	case "int":
		bits := t.size * 8
		if width > 0 {
			bits = width
		}
		v := g.Uint64() >> g.IntN(64)
		if t.signed {
			s := int64(v<<(64-bits)) >> (64 - bits)
			if s == -1<<63 {
				s++
			}
			return fmt.Sprint(s) + map[bool]string{true: "LL"}[g.isC()]
		}
		return fmt.Sprint(v<<(64-bits)>>(64-bits)) + map[bool]string{true: "ULL"}[g.isC()]
	case "float":
		return fmt.Sprintf("%.3f", float64(g.IntN(20000)-10000)/8)
	case "enum":
		e := genEnum[g.IntN(len(genEnum))]
		if g.lang.name == "rust" {
			return strings.ToUpper(t.name) + "::" + e.name
		}
		return t.name + "_" + e.name
	case "text":
		return `"` + strings.Repeat("abcdefghij", 2)[:g.IntN(t.size+1)%t.size] + `"`
	case "string":
		return `"` + strings.Repeat("klmnopqrst", 2)[:g.IntN(20)] + `"`
	case "array", "slice":
		var list []string
		for range t.size {
			list = append(list, g.value(t.elem, 0))
		}
		if t.kind == "slice" && g.lang.name == "rust" {
			return "&[" + strings.Join(list, ", ") + "]"
		}
		switch g.lang.name {
		case "rust":
			return "[" + strings.Join(list, ", ") + "]"
		case "go":
			return strings.TrimSpace(g.of(t, "")) + "{" + strings.Join(list, ", ") + "}"
		}
		return "{ " + strings.Join(list, ", ") + " }"
	case "union":
		return "{ " + g.value(t.fields[0].typ, 0) + " }"
	}
	var list []string
	for _, f := range t.fields {
		v := g.value(f.typ, f.width)
		if g.lang.name == "rust" {
			v = f.name + ": " + v
		}
		list = append(list, v)
	}
	switch g.lang.name {
	case "rust":
		return strings.ToUpper(t.name) + " { " + strings.Join(list, ", ") + " }"
	case "go":
		return t.name + "{" + strings.Join(list, ", ") + "}"
	}
	return "{ " + strings.Join(list, ", ") + " }"
}

func (g *generator) isC() bool { return g.lang.name == "c" || g.lang.name == "cc" }

// print gives a format and its arguments for a value in JSON.
func (g *generator) print(t *genType, x string) (format string, args []string) {
	leaf := func(c, rust, other string) (string, []string) {
		switch g.lang.name {
		case "rust":
			return "{}", []string{rust}
		case "go":
			return "%v", []string{x}
		}
		return c, []string{other}
	}
	open, end := "{", "}"
	if g.lang.name == "rust" {
		open, end = "{{", "}}"
	}
	switch t.kind {
	case "bool":
		return leaf("%s", x, x+` ? "true" : "false"`)
	case "int":
		if t.signed {
			return leaf("%lld", x, "(long long)"+x)
		}
		return leaf("%llu", x, "(unsigned long long)"+x)
	case "float":
		return leaf("%.17g", x, x)
	case "enum":
		f, a := leaf("%s", t.name+"_name("+x+")", t.name+"_name("+x+")")
		return `\"` + f + `\"`, a
	case "string":
		f, a := leaf("", x, "")
		return `\"` + f + `\"`, a
	case "text":
		return `\"%.*s\"`, []string{fmt.Sprint(t.size), x}
	case "array", "slice":
		var list []string
		for i := range t.size {
			f, a := g.print(t.elem, fmt.Sprintf("%s[%d]", x, i))
			list, args = append(list, f), append(args, a...)
		}
		return "[" + strings.Join(list, ",") + "]", args
	}
	var list []string
	for _, m := range t.fields {
		f, a := g.print(m.typ, x+"."+m.name)
		list, args = append(list, `\"`+m.name+`\":`+f), append(args, a...)
	}
	return open + strings.Join(list, ",") + end, args
}

// function writes one function, its call, and the definitions for it.
func (g *generator) function(i int) {
	fn := fmt.Sprintf("f%d", i)
	var params, names, values, formats, args, fetch []string
	var setup strings.Builder
	for k := range 1 + g.IntN(7) {
		t := g.typ(2)
		for g.isC() && (t.kind == "array" || t.kind == "text") {
			t = g.typ(2) // no parameter has such a type
		}
		name, v := fmt.Sprintf("p%d", k), fmt.Sprintf("v%d_%d", i, k)
		pointer := t.kind == "struct" && g.IntN(3) == 0 && g.lang.name != "rust"
		values = append(values, g.value(t, 0))
		expr := name
		if pointer && g.isC() {
			expr = "(*" + name + ")"
		}
		f, a := g.print(t, expr)
		formats, args = append(formats, `\"`+name+`\":`+f), append(args, a...)
		what := name
		if pointer {
			what = "*" + name
		}
		fetch = append(fetch, name+"="+what)
		switch g.lang.name {
		case "rust":
			typ := strings.TrimPrefix(g.of(t, ""), ": ")
			if pointer {
				params, names = append(params, name+": &"+typ), append(names, "&"+v)
			} else {
				params, names = append(params, name+": "+typ), append(names, v)
			}
			of := ""
			if g.more {
				of = "::<" + typ + ">"
			}
			fmt.Fprintf(&setup, "\tlet %s = black_box%s(%s);\n", v, of, values[k])
		case "go":
			typ := strings.TrimSpace(g.of(t, ""))
			if pointer {
				params, names = append(params, name+" *"+typ), append(names, "&"+v)
			} else {
				params, names = append(params, name+" "+typ), append(names, v)
			}
			fmt.Fprintf(&setup, "\tvar %s %s = %s\n", v, typ, values[k])
		default:
			if pointer {
				params, names = append(params, g.of(t, "*"+name)), append(names, "&"+v)
			} else {
				params, names = append(params, g.of(t, name)), append(names, v)
			}
			fmt.Fprintf(&setup, "\t%s = %s;\n", g.of(t, v), values[k])
		}
	}
	result := g.typ(2)
	for result.kind != "struct" && result.kind != "int" && result.kind != "float" {
		result = g.typ(2)
	}
	rv := g.value(result, 0)
	rf, ra := g.print(result, "r")
	list, last := strings.Join(args, ", "), strings.Join(ra, ", ")
	if list != "" {
		list = ", " + list
	}
	format, rformat := strings.Join(formats, ","), rf
	g.main.WriteString(setup.String())
	switch g.lang.name {
	case "rust":
		turbo := ""
		if g.more {
			turbo = "::<" + strings.TrimPrefix(g.of(result, ""), ": ") + ">"
			g.funcs.WriteString("#[no_mangle]\n#[inline(never)]\npub ")
		} else {
			g.funcs.WriteString("#[inline(never)]\n")
		}
		fmt.Fprintf(&g.funcs, "fn %s(%s) -> %s {\n\tlet r = black_box%s(%s);\n\tprintln!(\"=e%d {{%s}}\"%s);\n\tprintln!(\"=r%d {{\\\"r\\\":%s}}\", %s);\n\tr\n}\n", fn, strings.Join(params, ", "), strings.TrimPrefix(g.of(result, ""), ": "), turbo, rv, i, format, list, i, rformat, last)
		fmt.Fprintf(&g.main, "\tblack_box(%s(%s));\n", fn, strings.Join(names, ", "))
		g.defs = append(g.defs, fmt.Sprintf("p:e%d PROGRAM::%s $params", i, fn))
		if g.more {
			g.defs[len(g.defs)-1] = fmt.Sprintf("p:e%d %s $params", i, fn)
			g.defs = append(g.defs, fmt.Sprintf("r:r%d %s r=$retval", i, fn))
		}
		return
	case "go":
		fmt.Fprintf(&g.funcs, "//go:noinline\nfunc %s(%s) %s {\n\tvar r %s = %s\n\tfmt.Printf(\"=e%d {%s}\\n\"%s)\n\tfmt.Printf(\"=r%d {\\\"r\\\":%s}\\n\", %s)\n\treturn r\n}\n\n", fn, strings.Join(params, ", "), strings.TrimSpace(g.of(result, "")), strings.TrimSpace(g.of(result, "")), rv, i, format, list, i, rformat, last)
		fmt.Fprintf(&g.main, "\t%s(%s)\n", fn, strings.Join(names, ", "))
		g.defs = append(g.defs, fmt.Sprintf("p:e%d main.%s %s", i, fn, strings.Join(fetch, " ")))
		if g.more {
			g.defs = append(g.defs, fmt.Sprintf("r:r%d main.%s r=$retval", i, fn))
		}
		return
	}
	fmt.Fprintf(&g.funcs, "__attribute__((noinline, noclone)) %s(%s)\n{\n\tstatic %s = %s;\n\tprintf(\"=e%d {%s}\\n\"%s);\n\tprintf(\"=r%d {\\\"r\\\":%s}\\n\", %s);\n\t__asm__ volatile(\"\" ::: \"memory\");\n\treturn r;\n}\n", g.of(result, fn), strings.Join(params, ", "), g.of(result, "r"), rv, i, format, list, i, rformat, last)
	fmt.Fprintf(&g.main, "\t%s(%s);\n", fn, strings.Join(names, ", "))
	g.defs = append(g.defs, fmt.Sprintf("p:e%d %s %s", i, fn, strings.Join(fetch, " ")), fmt.Sprintf("r:r%d %s r=$retval", i, fn))
}
