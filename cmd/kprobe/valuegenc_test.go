package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// cGenerator writes programs with all that C's types, declarations and calling
// convention have, and prints more of them than generator does: what parameters lead
// to, members by their path, globals and locals, at entries, lines and returns.
type cGenerator struct {
	generator
	cxx     bool
	globals []genVariable
}

// genVariable is a variable of a generated program.
type genVariable struct {
	name string
	typ  *genType
}

// generateC makes a program in C, or in C++, and the definitions for it.
func generateC(cxx bool, seed uint64, functions int) (source string, defs []string) {
	lang := map[bool]string{false: "c", true: "cc"}[cxx]
	g := &cGenerator{generator: generator{programText: programText{Rand: rand.New(rand.NewPCG(seed, 112))}, lang: genLangs[lang], more: true}, cxx: cxx}
	g.put(cPrelude)
	for range 3 {
		g.global()
	}
	for i := range functions {
		g.function(i)
	}
	g.put("int main(void)\n{\n" + g.main.String() + "\treturn 0;\n}\n")
	return g.source.String(), g.defs
}

// cPrelude is what the programs print with.
const cPrelude = `#include <stdint.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
static __attribute__((noinline)) void mark(int n) { __asm__ volatile("" : : "r"(n) : "memory"); }
static void show_byte(unsigned char c)
{
	if (c == '"' || c == '\\')
		printf("\\%c", c);
	else if (c < 0x20 || c >= 0x7f)
		printf("\\u%04x", c);
	else
		putchar(c);
}
static void show_char(char c) { putchar('"'); show_byte(c); putchar('"'); }
static void show_text(const volatile char *s, int n)
{
	putchar('"');
	for (int i = 0; i < n && s[i]; i++)
		show_byte(s[i]);
	putchar('"');
}
static void show_wide(unsigned __int128 u, bool negative)
{
	char text[50];
	int at = 49;
	text[at] = 0;
	do
		text[--at] = '0' + (int)(u % 10);
	while (u /= 10);
	printf("%s%s", negative ? "-" : "", text + at);
}
static int call_me(int x) { return x + 1; }
static volatile int f_zero;
`

// number is an integer under one of its names.
func (g *cGenerator) number() *genType {
	t := &genType{kind: "int", size: 1 << g.IntN(4), signed: g.IntN(2) == 0}
	sign := map[bool]string{true: "", false: "unsigned "}[t.signed]
	switch t.size {
	case 1:
		t.spelled = map[bool]string{true: "signed char", false: "unsigned char"}[t.signed]
	case 2:
		t.spelled = sign + g.oneOf("short", "short int")
	case 4:
		t.spelled = sign + "int"
	case 8:
		t.spelled = sign + g.oneOf("long", "long long", "long int")
	}
	if g.IntN(2) == 0 {
		t.spelled = "" // as stdint.h calls it
	}
	return t
}

// enum is an enumeration: with negative members, unsigned ones, in a byte or in eight.
func (g *cGenerator) enum() *genType {
	t := &genType{kind: "enum", size: 4, name: g.name("e")}
	values := [][]int64{{-3, 0, 200, 70000}, {0, 1, 2}, {1, 2, 4, 0xf0000000}, {-1, 5}, {0, 200}, {-100, 7}, {0, 0x100000000}}
	k := g.IntN(len(values))
	attribute, class := "", ""
	switch {
	case k == 4 || k == 5:
		attribute, t.size = " __attribute__((packed))", 1
	case k == 6:
		t.size = 8
	}
	if g.cxx && g.IntN(2) == 0 {
		class, attribute = "class ", ""
		of := map[int]string{1: " : int8_t", 4: "", 8: " : long"}
		if k == 4 {
			of[1] = " : unsigned char"
		}
		if k == 2 {
			of[4] = " : unsigned"
		}
		t.base, t.attribute = of[t.size], "class"
	}
	var list []string
	for i, v := range values[k] {
		name := fmt.Sprintf("%s_%c", t.name, 'A'+i)
		t.names = append(t.names, genConstant{name, v})
		t.signed = t.signed || v < 0
		list = append(list, fmt.Sprintf("%s = %d%s", name, v, map[bool]string{true: "LL"}[v > 1<<31]))
	}
	fmt.Fprintf(&g.types, "enum %s%s%s%s { %s };\n", class, attribute, map[bool]string{true: " "}[attribute != ""]+t.name, t.base, strings.Join(list, ", "))
	return t
}

func (g *cGenerator) scalar() *genType {
	switch k := g.IntN(20); {
	case k < 7:
		return g.number()
	case k < 9:
		return &genType{kind: "float", size: 4 << g.IntN(2)}
	case k < 11:
		return &genType{kind: "bool", size: 1}
	case k < 13:
		return &genType{kind: "char", size: 1, spelled: "char"}
	case k < 16:
		return g.enum()
	case k == 16:
		return &genType{kind: "ldouble", size: 16, spelled: "long double"}
	case k == 17:
		return &genType{kind: "wide", size: 16, signed: g.IntN(2) == 0}
	case k == 18 && !g.cxx:
		size := 8 << g.IntN(3)
		return &genType{kind: "complex", size: size, spelled: map[int]string{8: "float", 16: "double", 32: "long double"}[size] + " _Complex"}
	case k == 19 && g.IntN(3) == 0:
		return &genType{kind: "function", size: 8, spelled: "callback"}
	}
	return g.pointer(g.number())
}

// pointer leads to a variable of the program's, or nowhere.
func (g *cGenerator) pointer(to *genType) *genType {
	if to.spelled == "unsigned char" {
		to.spelled = "" // pointers to it are texts
	}
	return &genType{kind: "pointer", size: 8, elem: to, quals: g.oneOf("", "const ", "volatile ", "const volatile ")}
}

// typ makes a type, structures in structures up to a depth.
func (g *cGenerator) typ(depth int) *genType {
	k := g.IntN(12)
	var t *genType
	switch {
	case depth == 0 || k < 5:
		t = g.scalar()
	case k == 5:
		t = &genType{kind: "text", size: 1 + g.IntN(20)}
	case k == 6:
		t = &genType{kind: "array", size: 1 + g.IntN(4), elem: g.typ(depth - 1)}
		for dims := g.IntN(3); dims > 0; dims-- {
			t = &genType{kind: "array", size: 1 + g.IntN(3), elem: t}
		}
		if innermost(t).kind == "char" {
			return &genType{kind: "text", size: 3} // as arrays of them are
		}
		return t
	case k == 7:
		t = g.union()
	default:
		t = g.structure(depth)
	}
	if t.kind != "text" && t.kind != "function" && g.IntN(6) == 0 {
		g.alias(t)
	}
	return t
}

func innermost(t *genType) *genType {
	for t.kind == "array" {
		t = t.elem
	}
	return t
}

// alias gives a type another name, or one by way of several.
func (g *cGenerator) alias(t *genType) {
	for range 1 + g.IntN(3) {
		name := g.name("t")
		fmt.Fprintf(&g.types, "typedef %s;\n", g.of(t, name))
		t.spelled, t.quals = name, ""
	}
}

// union has bytes, and other views of them. All of it has a value by the first.
func (g *cGenerator) union() *genType {
	t := &genType{kind: "union", name: g.name("u")}
	t.fields = g.views()
	g.declareC(t)
	return t
}

func (g *cGenerator) views() []genField {
	inner := &genType{kind: "struct", name: g.name("s")}
	for range 1 + g.IntN(3) {
		n := g.number()
		f := genField{name: g.name("m"), typ: n}
		if g.IntN(2) == 0 {
			f.width = 1 + g.IntN(n.size*8)
		}
		inner.fields = append(inner.fields, f)
	}
	g.declareC(inner)
	return []genField{
		{g.name("x"), &genType{kind: "array", size: 24, elem: &genType{kind: "int", size: 1}}, 0},
		{g.name("y"), g.number(), 0}, {g.name("z"), inner, 0},
		{g.name("w"), &genType{kind: "array", size: 2, elem: &genType{kind: "int", size: 4, signed: true}}, 0}}
}

func (g *cGenerator) structure(depth int) *genType {
	t := &genType{kind: "struct", name: g.name("s")}
	t.attribute = g.oneOf("", "", "", "", "__attribute__((packed)) ", "__attribute__((packed, aligned(4))) ", "__attribute__((aligned(32))) ")
	for range 1 + g.IntN(5) {
		f := genField{name: g.name("m"), typ: g.typ(depth - 1)}
		switch k := f.typ.kind; {
		case k == "bool" && g.IntN(2) == 0:
			f.width = 1
		case k == "int" && g.IntN(3) == 0:
			f.width = 1 + g.IntN(f.typ.size*8)
		case k == "enum" && f.typ.attribute == "" && g.IntN(2) == 0:
			f.width = f.typ.needs() + g.IntN(f.typ.size*8-f.typ.needs()+1)
		case k == "struct" && f.typ.spelled == "" && g.IntN(3) == 0:
			f.name = "" // its members are the structure's own
		case k == "union" && f.typ.spelled == "" && g.IntN(2) == 0:
			f.name = ""
		}
		if f.width == 0 && f.name != "" && g.IntN(8) == 0 {
			f.typ = g.qualified(f.typ, strings.Contains(t.attribute, "packed"))
		}
		t.fields = append(t.fields, f)
		if f.width > 0 && g.IntN(6) == 0 {
			t.fields = append(t.fields, genField{typ: &genType{kind: "int", size: 4, signed: true, spelled: "int"}, width: []int{-1, 1, 5, 9}[g.IntN(4)]})
		}
	}
	g.declareC(t)
	return t
}

// qualified is a copy of a scalar type with a qualifier or an alignment.
func (g *cGenerator) qualified(t *genType, packed bool) *genType {
	if t.kind != "int" && t.kind != "float" && t.kind != "bool" {
		return t
	}
	q := *t
	kind := []string{"const ", "volatile ", "_Alignas(16) ", "_Atomic "}
	switch {
	case g.cxx:
		kind = []string{"const ", "volatile ", "alignas(16) "}
	case packed || t.size != 1: // what may not lie where it can be atomic is a call of a library
		kind = kind[:3]
	}
	q.spelled = strings.TrimSuffix(g.oneOf(kind...)+g.of(t, ""), " ")
	return &q
}

// needs is how many bits an enumeration's members take.
func (t *genType) needs() int {
	n := 1
	for _, c := range t.names {
		for w := n; ; w++ {
			low, high := int64(0), int64(1)<<w-1
			if t.signed {
				low, high = -1<<(w-1), 1<<(w-1)-1
			}
			if c.value >= low && c.value <= high {
				n = w
				break
			}
		}
	}
	return n
}

// declareC declares a structure or union; those that members with no name have are
// written out in it.
func (g *cGenerator) declareC(t *genType) {
	fmt.Fprintf(&g.types, "%s %s%s {\n%s};\n", t.kind, t.attribute, t.name, g.fieldsOf(t))
}

func (g *cGenerator) fieldsOf(t *genType) string {
	var w strings.Builder
	for _, f := range t.fields {
		switch {
		case f.width != 0 && f.name == "":
			fmt.Fprintf(&w, "\tint : %d;\n", max(0, f.width))
		case f.width > 0:
			fmt.Fprintf(&w, "\t%s : %d;\n", g.of(f.typ, f.name), f.width)
		case f.name == "":
			fmt.Fprintf(&w, "\t%s %s{\n%s};\n", f.typ.kind, f.typ.attribute, g.fieldsOf(f.typ))
		default:
			fmt.Fprintf(&w, "\t%s;\n", g.of(f.typ, f.name))
		}
	}
	return w.String()
}

// of is a declaration of a name.
func (g *cGenerator) of(t *genType, name string) string {
	switch {
	case t.kind == "function":
		return "int (*" + name + ")(int)"
	case t.spelled != "":
		return t.spelled + " " + name
	case t.kind == "wide":
		return map[bool]string{true: "", false: "unsigned "}[t.signed] + "__int128 " + name
	case t.kind == "pointer" && t.elem.kind == "array":
		return g.of(t.elem, "(*"+name+")")
	case t.kind == "pointer":
		return t.quals + g.of(t.elem, "*"+name)
	case t.kind == "array":
		return g.of(t.elem, fmt.Sprintf("%s[%d]", name, t.size))
	}
	return g.generator.of(t, name)
}

// value is a random value as an initializer.
func (g *cGenerator) value(t *genType, width int) string {
	switch t.kind {
	case "char":
		return g.oneOf("'a'", "'Z'", "'\\\\'", "'\"'", "' '", "'\\001'", "'~'", "'\\0'", "'\\t'")
	case "ldouble":
		return fmt.Sprintf("%.3fL", float64(g.IntN(1<<40)-1<<39)/8)
	case "complex":
		return fmt.Sprintf("(%.3f %s %.3fi)", float64(g.IntN(4000)-2000)/8, g.oneOf("+", "-"), float64(g.IntN(4000))/8)
	case "wide":
		v := fmt.Sprintf("((unsigned __int128)%dULL << 64 | %dULL)", g.Uint64()>>(g.IntN(2)*63), g.Uint64())
		return map[bool]string{true: "(__int128)", false: ""}[t.signed] + v
	case "enum":
		c := t.names[g.IntN(len(t.names))]
		if t.attribute == "class" {
			return t.name + "::" + c.name
		}
		return c.name
	case "function":
		return g.oneOf("call_me", "0")
	case "pointer":
		if g.IntN(5) == 0 {
			return "0"
		}
		return "&" + g.pointee(t.elem)
	case "text":
		n := g.IntN(t.size + 1)
		if g.cxx {
			n = min(n, t.size-1)
		}
		list := []string{"a", "B", " ", "\\037", "\\\\", "\\\"", "z", "9", "\\001", "~"}
		out := ""
		for range n {
			out += list[g.IntN(len(list))]
		}
		return `"` + out + `"`
	case "array":
		var list []string
		for range t.size {
			list = append(list, g.value(t.elem, 0))
		}
		return "{ " + strings.Join(list, ", ") + " }"
	case "union":
		return "{ " + g.value(t.fields[0].typ, 0) + " }"
	case "struct":
		var list []string
		for _, f := range t.fields {
			if f.name != "" || f.width == 0 {
				list = append(list, g.value(f.typ, f.width))
			}
		}
		return "{ " + strings.Join(list, ", ") + " }"
	}
	return g.generator.value(t, width)
}

// pointee is a variable for pointers of a type to lead to.
func (g *cGenerator) pointee(t *genType) string {
	name := g.name("to")
	fmt.Fprintf(&g.types, "static %s = %s;\n", g.of(t, name), g.value(t, 0))
	return name
}

// global is a variable of the program or of its thread.
func (g *cGenerator) global() {
	v := genVariable{g.name("g"), g.typ(2)}
	kind := g.oneOf("static ", "", "static _Thread_local ", "_Thread_local ")
	if g.cxx {
		kind = strings.ReplaceAll(kind, "_Thread_local", "__thread")
	}
	text := kind + g.of(v.typ, v.name) + " = " + g.value(v.typ, 0) + ";\n"
	g.flush()
	g.put(text)
	g.globals = append(g.globals, v)
	fmt.Fprintf(&g.main, "\t__asm__ volatile(\"\" : : \"r\"(&%s) : \"memory\");\n", v.name)
}

// show writes the statements that print an expression in JSON.
func (g *cGenerator) show(w *strings.Builder, t *genType, x string) {
	switch t.kind {
	case "bool":
		fmt.Fprintf(w, "\tprintf(\"%%s\", %s ? \"true\" : \"false\");\n", x)
	case "int":
		if t.signed {
			fmt.Fprintf(w, "\tprintf(\"%%lld\", (long long)%s);\n", x)
		} else {
			fmt.Fprintf(w, "\tprintf(\"%%llu\", (unsigned long long)%s);\n", x)
		}
	case "char":
		fmt.Fprintf(w, "\tshow_char(%s);\n", x)
	case "float":
		fmt.Fprintf(w, "\tprintf(\"%%.17g\", (double)%s);\n", x)
	case "ldouble":
		fmt.Fprintf(w, "\tprintf(\"%%.21Lg\", %s);\n", x)
	case "complex":
		fmt.Fprintf(w, "\tprintf(\"{\\\"re\\\":%%.21Lg,\\\"im\\\":%%.21Lg}\", (long double)__real__ %s, (long double)__imag__ %s);\n", x, x)
	case "wide":
		if t.signed {
			fmt.Fprintf(w, "\tshow_wide(%s < 0 ? -(unsigned __int128)%s : (unsigned __int128)%s, %s < 0);\n", x, x, x, x)
		} else {
			fmt.Fprintf(w, "\tshow_wide(%s, false);\n", x)
		}
	case "enum":
		text := fmt.Sprintf("\"%d\"", 0)
		for _, c := range t.names {
			name := c.name
			if t.attribute == "class" {
				name = t.name + "::" + name
			}
			text = fmt.Sprintf("%s == %s ? \"\\\"%s\\\"\" : %s", x, name, c.name, text)
		}
		fmt.Fprintf(w, "\tprintf(\"%%s\", %s);\n", text)
	case "pointer":
		fmt.Fprintf(w, "\tprintf(\"%%lu\", (unsigned long)%s);\n", x)
	case "function":
		fmt.Fprintf(w, "\tprintf(\"%%s\", %s ? \"\\\"call_me\\\"\" : \"\\\"0x0\\\"\");\n", x)
	case "text":
		fmt.Fprintf(w, "\tshow_text(%s, %d);\n", x, t.size)
	case "vla":
		fmt.Fprintf(w, "\tfor (int n = 0; n < vn; n++)\n\t\tprintf(\"%%c%%d\", n ? ',' : '[', %s[n]);\n\tputchar(']');\n", x)
	case "array":
		i := g.name("i")
		fmt.Fprintf(w, "\tfor (int %s = 0; %s < %d; %s++) {\n\tputchar(%s ? ',' : '[');\n", i, i, t.size, i, i)
		g.show(w, t.elem, x+"["+i+"]")
		fmt.Fprintf(w, "\t}\n\tputchar(']');\n")
	default:
		fmt.Fprintf(w, "\tputchar('{');\n")
		first := true
		g.showMembers(w, t, x, &first)
		fmt.Fprintf(w, "\tputchar('}');\n")
	}
}

func (g *cGenerator) showMembers(w *strings.Builder, t *genType, x string, first *bool) {
	for _, f := range t.fields {
		switch {
		case f.name == "" && f.width == 0:
			g.showMembers(w, f.typ, x, first)
		case f.name != "":
			g.key(w, f.name, first)
			g.show(w, f.typ, x+"."+f.name)
		}
	}
}

func (g *cGenerator) key(w *strings.Builder, name string, first *bool) {
	comma := ","
	if *first {
		comma, *first = "", false
	}
	fmt.Fprintf(w, "\tprintf(\"%s\\\"%s\\\":\");\n", comma, name)
}
