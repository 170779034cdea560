package main

import (
	"fmt"
	"slices"
	"strings"
)

// rustType is a type of a generated program in Rust.
type rustType struct {
	kind     string // int, float, bool, char, unit, plain, struct, enum, text, option, result, pointer, and std's containers
	spelled  string
	size     int // of an integer the bits, of an array the elements
	signed   bool
	elem     *rustType
	key      *rustType
	fields   []rustField
	variants []rustVariant
	packed   bool
	copied   bool // Copy
	c        bool // as C lays it out, so that functions of C's convention may have it
}

type rustField struct {
	name string // "": by its number
	typ  *rustType
}

type rustVariant struct {
	name   string
	fields []rustField
}

// rustGenerator writes programs with what Rust has of types, layouts and containers,
// which print of themselves what is at their entries, lines and returns.
type rustGenerator struct{ programText }

// rustPrelude is what the programs print with.
const rustPrelude = `#![allow(dead_code, unused_mut, unused_imports, unused_variables, unused_must_use, improper_ctypes_definitions, non_camel_case_types, private_interfaces, overflowing_literals)]
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, LinkedList, VecDeque};
use std::fmt::Write;
use std::hint::black_box;
use std::rc::Rc;
use std::sync::Arc;
#[inline(never)] fn lit(o: &mut String, s: &str) { o.push_str(s); }
#[inline(never)] fn number(o: &mut String, v: i128) { write!(o, "{}", v); }
#[inline(never)] fn unsigned(o: &mut String, v: u128) { write!(o, "{}", v); }
#[inline(never)] fn float(o: &mut String, v: f64) { write!(o, "{}", v); }
#[inline(never)] fn short(o: &mut String, v: f32) { write!(o, "{}", v); }
#[inline(never)] fn letter(o: &mut String, c: char) {
	match c {
		'"' | '\\' => { o.push('\\'); o.push(c); }
		c if (c as u32) < 0x20 || c as u32 == 0x7f => { write!(o, "\\u{:04x}", c as u32); }
		c => o.push(c),
	}
}
#[inline(never)] fn text(o: &mut String, s: &str) { o.push('"'); for c in s.chars() { letter(o, c); } o.push('"'); }
#[inline(never)] fn mark(n: u32) { black_box(n); }
fn address<T: ?Sized>(p: *const T) -> u128 { p as *const () as usize as u128 }
fn leak<T>(v: T) -> &'static T { Box::leak(Box::new(v)) }
fn leak_mut<T>(v: T) -> &'static mut T { Box::leak(Box::new(v)) }
#[no_mangle] pub fn call_me(x: i32) -> i32 { x + 1 }
`

// isEmpty reports a type of no bytes.
func (t *rustType) isEmpty() bool {
	switch t.kind {
	case "array":
		return t.size == 0 || t.elem.isEmpty()
	case "enum":
		return len(t.variants) == 1 && (&rustType{kind: "struct", fields: t.variants[0].fields}).isEmpty()
	case "unit", "struct":
		return !slices.ContainsFunc(t.fields, func(f rustField) bool { return !f.typ.isEmpty() })
	}
	return false
}

func (g *rustGenerator) number() *rustType {
	t := &rustType{kind: "int", size: 8 << g.IntN(4), signed: g.IntN(2) == 0, copied: true, c: true}
	t.spelled = map[bool]string{true: "i", false: "u"}[t.signed] + fmt.Sprint(t.size)
	if t.size == 64 && g.IntN(3) == 0 {
		t.spelled = map[bool]string{true: "isize", false: "usize"}[t.signed]
	}
	return t
}

func (g *rustGenerator) scalar() *rustType {
	switch k := g.IntN(20); {
	case k < 7:
		return g.number()
	case k < 9:
		t := &rustType{kind: "float", size: 32 << g.IntN(2), copied: true, c: true}
		t.spelled = fmt.Sprintf("f%d", t.size)
		return t
	case k < 11:
		return &rustType{kind: "bool", spelled: "bool", copied: true, c: true}
	case k < 13:
		return &rustType{kind: "char", spelled: "char", copied: true}
	case k < 15:
		return g.plain()
	case k < 16:
		t := &rustType{kind: "int", size: 128, signed: g.IntN(2) == 0, copied: true}
		t.spelled = map[bool]string{true: "i128", false: "u128"}[t.signed]
		return t
	case k < 18:
		of := g.number()
		for of.size > 64 {
			of = g.number()
		}
		sized := strings.ToUpper(of.spelled[:1]) + of.spelled[1:]
		return &rustType{kind: "nonzero", spelled: "std::num::NonZero" + sized, elem: of, copied: true}
	case k < 19:
		return &rustType{kind: "function", spelled: "fn(i32) -> i32", copied: true}
	}
	return &rustType{kind: "raw", spelled: g.oneOf("*const ", "*mut ") + "u32", copied: true}
}

// plain is an enum whose variants have nothing in them.
func (g *rustGenerator) plain() *rustType {
	t := &rustType{kind: "plain", spelled: g.name("E"), copied: true}
	repr := g.oneOf("", "", "i8", "u8", "i16", "u32", "i64", "u64", "C")
	at := 0
	if strings.HasPrefix(repr, "i") {
		at = -5
	}
	var list []string
	for range 2 + g.IntN(4) {
		name := g.name("V")
		t.variants = append(t.variants, rustVariant{name: name})
		if at += g.IntN(20); repr != "" {
			list = append(list, fmt.Sprintf("%s = %d", name, at))
		} else {
			list = append(list, name)
		}
		at++
	}
	if repr != "" {
		repr = "#[repr(" + repr + ")] "
	}
	fmt.Fprintf(&g.types, "#[derive(Clone, Copy)] %senum %s { %s }\n", repr, t.spelled, strings.Join(list, ", "))
	return t
}

func (g *rustGenerator) wrap(kind, format string, elem *rustType, copied bool) *rustType {
	return &rustType{kind: kind, spelled: fmt.Sprintf(format, elem.spelled), elem: elem, copied: copied}
}

// typ makes a type, types in types up to a depth.
func (g *rustGenerator) typ(depth int) *rustType {
	if depth == 0 {
		if g.IntN(6) == 0 {
			return g.text()
		}
		return g.scalar()
	}
	elem := func() *rustType { return g.typ(depth - 1) }
	switch k := g.IntN(30); {
	case k < 7:
		return g.scalar()
	case k == 7:
		return g.text()
	case k < 10:
		e := elem()
		return g.wrap("option", "Option<%s>", e, e.copied)
	case k == 10:
		t := &rustType{kind: "result", elem: elem(), key: elem()}
		t.spelled, t.copied = "Result<"+t.elem.spelled+", "+t.key.spelled+">", t.elem.copied && t.key.copied
		return t
	case k < 13:
		t := &rustType{kind: "array", size: g.IntN(5), elem: elem()}
		t.spelled, t.copied, t.c = fmt.Sprintf("[%s; %d]", t.elem.spelled, t.size), t.elem.copied, t.elem.c && t.size > 0
		return t
	case k == 13:
		t := &rustType{kind: "slice", size: g.IntN(6), elem: elem(), copied: true}
		t.spelled = "&'static [" + t.elem.spelled + "]"
		return t
	case k == 14:
		e := g.typ(depth - 1)
		for e.kind == "option" || e.kind == "result" || e.kind == "reference" {
			e = g.scalar() // what such a reference prints as depends on where it is
		}
		if g.IntN(2) == 0 {
			return g.wrap("reference", "&'static mut %s", e, false)
		}
		return g.wrap("reference", "&'static %s", e, true)
	case k == 15:
		return g.wrap("box", g.oneOf("Box<%s>", "Rc<%s>", "Arc<%s>"), elem(), false)
	case k == 16:
		return g.wrap("boxes", g.oneOf("Box<[%s]>", "Rc<[%s]>", "Arc<[%s]>"), elem(), false)
	case k == 17:
		return g.wrap("vec", g.oneOf("Vec<%s>", "VecDeque<%s>", "LinkedList<%s>"), elem(), false)
	case k == 18:
		t := &rustType{kind: "map", key: g.key(), elem: elem()}
		t.spelled = g.oneOf("HashMap<", "BTreeMap<") + t.key.spelled + ", " + t.elem.spelled + ">"
		return t
	case k == 19:
		return g.wrap("set", g.oneOf("HashSet<%s>", "BTreeSet<%s>"), g.key(), false)
	case k == 20:
		return &rustType{kind: "unit", spelled: "()", copied: true}
	case k < 24:
		return g.tuple(depth)
	case k < 27:
		return g.structure(depth)
	}
	return g.enum(depth)
}

func (g *rustGenerator) text() *rustType {
	how := g.IntN(5)
	return &rustType{kind: "text", spelled: []string{"&'static str", "String", "Box<str>", "Rc<str>", "&'static String"}[how], copied: how == 0 || how == 4}
}

// key is a type that maps can have for their keys.
func (g *rustGenerator) key() *rustType {
	for {
		switch t := g.scalar(); t.kind {
		case "int", "bool", "char", "nonzero":
			return t
		case "float":
			return &rustType{kind: "text", spelled: g.oneOf("&'static str", "String")}
		}
	}
}

func (g *rustGenerator) fieldsOf(depth, n int, named bool) (list []rustField, copied bool) {
	copied = true
	for i := range n {
		f := rustField{typ: g.typ(depth - 1)}
		if f.name = fmt.Sprint(i); named {
			f.name = g.name("m")
		}
		list, copied = append(list, f), copied && f.typ.copied
	}
	return list, copied
}

func (g *rustGenerator) tuple(depth int) *rustType {
	t := &rustType{kind: "struct"}
	t.fields, t.copied = g.fieldsOf(depth, 1+g.IntN(4), false)
	for _, f := range t.fields {
		t.spelled += f.typ.spelled + ", "
	}
	t.spelled = "(" + t.spelled + ")"
	return t
}

// structure is a struct: of names or numbers, of parameters, and laid out by a repr.
func (g *rustGenerator) structure(depth int) *rustType {
	t := &rustType{kind: "struct", spelled: g.name("S")}
	named := g.IntN(3) > 0
	t.fields, t.copied = g.fieldsOf(depth, g.IntN(6), named)
	repr := g.oneOf("", "", "", "", "C", "C", "align(32)", "packed", "C, packed(2)", "transparent")
	for i := range t.fields {
		if strings.Contains(repr, "packed") && !t.fields[i].typ.copied {
			t.fields[i].typ = g.number()
		}
	}
	if t.packed = strings.Contains(repr, "packed"); t.packed {
		t.copied = true
	}
	for _, f := range t.fields {
		if t.packed && strings.Contains(f.typ.spelled, "S") {
			repr, t.packed = "C", false // one that is aligned may be in it
		}
	}
	if t.c = repr == "C"; repr == "transparent" && len(t.fields) != 1 {
		repr = ""
	}
	if repr != "" {
		repr = "#[repr(" + repr + ")] "
	}
	if t.copied {
		repr = "#[derive(Clone, Copy)] " + repr
	}
	var list []string
	params, of := "", ""
	for i, f := range t.fields {
		typ := f.typ.spelled
		t.c = t.c && f.typ.c
		if g.IntN(5) == 0 && !t.packed && !strings.Contains(repr, "transparent") {
			typ = fmt.Sprintf("T%d", i)
			params, of = params+typ+", ", of+f.typ.spelled+", "
		}
		if named {
			typ = f.name + ": " + typ
		}
		list = append(list, typ)
	}
	if params != "" {
		params, of = "<"+params+">", "<"+of+">"
	}
	if named {
		fmt.Fprintf(&g.types, "%sstruct %s%s { %s }\n", repr, t.spelled, params, strings.Join(list, ", "))
	} else {
		fmt.Fprintf(&g.types, "%sstruct %s%s(%s);\n", repr, t.spelled, params, strings.Join(list, ", "))
	}
	t.spelled += of
	return t
}

// enum has variants with something in them, in niches where there are some.
func (g *rustGenerator) enum(depth int) *rustType {
	t := &rustType{kind: "enum", spelled: g.name("E"), copied: true}
	repr := g.oneOf("", "", "", "", "u8", "C", "i16", "C, u8")
	var list []string
	for i := range 1 + g.IntN(4) {
		v := rustVariant{name: g.name("V")}
		named, n := g.IntN(2) == 0, g.IntN(4)
		if i == 0 {
			n = 1 + g.IntN(3) // one without any has names for its variants
		}
		copied := false
		v.fields, copied = g.fieldsOf(depth, n, named)
		t.copied = t.copied && copied
		var fields []string
		for _, f := range v.fields {
			if named {
				fields = append(fields, f.name+": "+f.typ.spelled)
			} else {
				fields = append(fields, f.typ.spelled)
			}
		}
		switch {
		case n == 0:
			list = append(list, v.name)
		case named:
			list = append(list, v.name+" { "+strings.Join(fields, ", ")+" }")
		default:
			list = append(list, v.name+"("+strings.Join(fields, ", ")+")")
		}
		t.variants = append(t.variants, v)
	}
	if repr != "" {
		repr = "#[repr(" + repr + ")] "
	}
	if t.copied {
		repr = "#[derive(Clone, Copy)] " + repr
	}
	fmt.Fprintf(&g.types, "%senum %s { %s }\n", repr, t.spelled, strings.Join(list, ", "))
	return t
}
