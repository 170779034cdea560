package main

import (
	"fmt"
	"math/big"
	"strings"
)

// literal is a random text as Rust writes it.
func (g *rustGenerator) literal() string {
	out := ""
	for range g.IntN(12) {
		out += g.oneOf("a", "B", " ", "\\n", "\\\\", "\\\"", "z", "9", "\\u{1}", "~", "é", "\\u{1F600}")
	}
	return `"` + out + `"`
}

// integer is one of a type's values: all bits are as likely as few.
func (g *rustGenerator) integer(t *rustType) string {
	v := new(big.Int).SetUint64(g.Uint64())
	v.Lsh(v, 64).Add(v, new(big.Int).SetUint64(g.Uint64()))
	v.Rsh(v, uint(128-t.size+g.IntN(t.size)))
	if t.signed && v.Bit(t.size-1) == 1 {
		v.Sub(v, new(big.Int).Lsh(big.NewInt(1), uint(t.size)))
	}
	return v.String()
}

// value is a random value as an expression.
func (g *rustGenerator) value(t *rustType) string {
	elems := func(n int) string {
		var list []string
		for range n {
			list = append(list, g.value(t.elem))
		}
		return strings.Join(list, ", ")
	}
	switch t.kind {
	case "int":
		return g.integer(t)
	case "nonzero":
		for {
			if v := g.integer(t.elem); v != "0" {
				return t.spelled + "::new(" + v + ").unwrap()"
			}
		}
	case "float":
		return fmt.Sprintf("%.3f", float64(g.IntN(20000)-10000)/8)
	case "bool":
		return g.oneOf("true", "false")
	case "char":
		return g.oneOf("'a'", "'Z'", "'\\\\'", "'\"'", "' '", "'\\u{1}'", "'~'", "'\\0'", "'é'", "'\\u{1F600}'", "'\\u{10FFFF}'")
	case "plain":
		return t.spelled + "::" + t.variants[g.IntN(len(t.variants))].name
	case "function":
		return "call_me as " + t.spelled
	case "raw":
		return fmt.Sprintf("%d as %s", g.IntN(1<<30), t.spelled)
	case "unit":
		return "()"
	case "text":
		switch t.spelled {
		case "&'static str":
			return g.literal()
		case "&'static String":
			return "leak(String::from(" + g.literal() + "))"
		}
		return t.spelled[:strings.IndexAny(t.spelled+"<", "<")] + "::from(" + g.literal() + ")"
	case "option":
		if g.IntN(3) == 0 {
			return "None"
		}
		return "Some(" + g.value(t.elem) + ")"
	case "result":
		if g.IntN(2) == 0 {
			return "Err(" + g.value(t.key) + ")"
		}
		return "Ok(" + g.value(t.elem) + ")"
	case "array":
		return "[" + elems(t.size) + "]"
	case "slice":
		return fmt.Sprintf("&leak::<[%s; %d]>([%s])[..]", t.elem.spelled, t.size, elems(t.size))
	case "reference":
		if strings.HasPrefix(t.spelled, "&'static mut") {
			return "leak_mut::<" + t.elem.spelled + ">(" + g.value(t.elem) + ")"
		}
		return "leak::<" + t.elem.spelled + ">(" + g.value(t.elem) + ")"
	case "box":
		return t.spelled[:strings.IndexByte(t.spelled, '<')] + "::new(" + g.value(t.elem) + ")"
	case "boxes":
		return t.spelled[:strings.IndexByte(t.spelled, '<')] + "::from(vec![" + elems(g.IntN(6)) + "])"
	case "vec", "set":
		return t.spelled[:strings.IndexByte(t.spelled, '<')] + "::from([" + elems(g.IntN(6)) + "])"
	case "map":
		var list []string
		for range g.IntN(5) {
			list = append(list, "("+g.value(t.key)+", "+g.value(t.elem)+")")
		}
		return t.spelled[:strings.IndexByte(t.spelled, '<')] + "::from([" + strings.Join(list, ", ") + "])"
	case "enum":
		v := t.variants[g.IntN(len(t.variants))]
		return t.spelled + "::" + v.name + g.fields(v.fields)
	}
	name, _, _ := strings.Cut(t.spelled, "<")
	if strings.HasPrefix(t.spelled, "(") {
		name = ""
		if len(t.fields) == 1 {
			return "(" + g.value(t.fields[0].typ) + ",)"
		}
	}
	if len(t.fields) == 0 {
		return name + " {}"
	}
	return name + g.fields(t.fields)
}

func (g *rustGenerator) fields(fields []rustField) string {
	var list []string
	named := false
	for _, f := range fields {
		v := g.value(f.typ)
		if named = f.name[0] == 'm'; named {
			v = f.name + ": " + v
		}
		list = append(list, v)
	}
	switch {
	case len(list) == 0:
		return ""
	case named:
		return " { " + strings.Join(list, ", ") + " }"
	}
	return "(" + strings.Join(list, ", ") + ")"
}

// show writes the statements that add the value of a place to o, in JSON.
func (g *rustGenerator) show(w *strings.Builder, t *rustType, x string) {
	lit := func(s string) { fmt.Fprintf(w, "\tlit(&mut o, %q);\n", s) }
	if t.isEmpty() && t.kind != "array" {
		lit("{}")
		return
	}
	loop := func(over string) {
		e := g.name("e")
		fmt.Fprintf(w, "\tlet mut first = true;\n\tlit(&mut o, \"[\");\n\tfor %s in %s {\n\tif !first { lit(&mut o, \",\"); }\n\tfirst = false;\n", e, over)
		g.show(w, t.elem, "(*"+e+")")
		fmt.Fprintf(w, "\t}\n\tlit(&mut o, \"]\");\n")
	}
	switch t.kind {
	case "int":
		fmt.Fprintf(w, "\t%s(&mut o, %s as %s);\n", map[bool]string{true: "number", false: "unsigned"}[t.signed], x, map[bool]string{true: "i128", false: "u128"}[t.signed])
	case "nonzero":
		lit(`{"__0":{"__0":`)
		g.show(w, t.elem, x+".get()")
		lit(`}}`)
	case "float":
		fmt.Fprintf(w, "\t%s(&mut o, %s);\n", map[int]string{32: "short", 64: "float"}[t.size], x)
	case "bool":
		fmt.Fprintf(w, "\tlit(&mut o, if %s { \"true\" } else { \"false\" });\n", x)
	case "char":
		fmt.Fprintf(w, "\tlit(&mut o, \"\\\"\"); letter(&mut o, %s); lit(&mut o, \"\\\"\");\n", x)
	case "plain":
		fmt.Fprintf(w, "\tlit(&mut o, match %s {", x)
		for _, v := range t.variants {
			fmt.Fprintf(w, " %s::%s => \"\\\"%s\\\"\",", t.spelled, v.name, v.name)
		}
		fmt.Fprintf(w, " });\n")
	case "function":
		lit(`"call_me"`)
		fmt.Fprintf(w, "\tblack_box(%s);\n", x)
	case "raw":
		fmt.Fprintf(w, "\tunsigned(&mut o, %s as usize as u128);\n", x)
	case "reference":
		switch t.elem.kind {
		case "text", "slice", "box", "boxes", "vec", "set", "map":
			g.show(w, t.elem, "(*"+x+")")
		default:
			fmt.Fprintf(w, "\tunsigned(&mut o, address(&*%s));\n", x)
		}
	case "text":
		fmt.Fprintf(w, "\ttext(&mut o, &*%s);\n", x)
	case "option":
		v := g.name("v")
		fmt.Fprintf(w, "\tmatch &%s {\n\tNone => lit(&mut o, \"{\\\"None\\\":{}}\"),\n\tSome(%s) => {\n", x, v)
		lit(`{"Some":{"__0":`)
		g.show(w, t.elem, "(*"+v+")")
		lit(`}}`)
		fmt.Fprintf(w, "\t}\n\t}\n")
	case "result":
		v := g.name("v")
		fmt.Fprintf(w, "\tmatch &%s {\n\tOk(%s) => {\n", x, v)
		lit(`{"Ok":{"__0":`)
		g.show(w, t.elem, "(*"+v+")")
		lit(`}}`)
		fmt.Fprintf(w, "\t}\n\tErr(%s) => {\n", v)
		lit(`{"Err":{"__0":`)
		g.show(w, t.key, "(*"+v+")")
		lit(`}}`)
		fmt.Fprintf(w, "\t}\n\t}\n")
	case "array", "slice", "boxes", "vec", "set":
		loop(x + ".iter()")
	case "box":
		g.show(w, t.elem, "(*"+x+")")
	case "map":
		g.showMap(w, t, x)
	case "enum":
		fmt.Fprintf(w, "\tmatch &%s {\n", x)
		for _, v := range t.variants {
			var list []string
			fields := append([]rustField(nil), v.fields...)
			named := false
			for i, f := range v.fields {
				as := g.name("v")
				fields[i].name = as
				if named = f.name[0] == 'm'; named {
					as = f.name + ": " + as
				}
				list = append(list, as)
			}
			fmt.Fprintf(w, "\t%s::%s %s => {\n", t.spelled, v.name, map[bool]string{true: "{ " + strings.Join(list, ", ") + " }", false: strings.TrimSuffix("("+strings.Join(list, ", ")+")", "()")}[named])
			lit(`{"` + v.name + `":{`)
			for i := range fields {
				lit(map[bool]string{true: ","}[i > 0] + `"` + rustMember(v.fields[i].name) + `":`)
				g.show(w, fields[i].typ, "(*"+fields[i].name+")")
			}
			lit("}}")
			fmt.Fprintf(w, "\t}\n")
		}
		fmt.Fprintf(w, "\t}\n")
	default:
		lit("{")
		for i, f := range t.fields {
			lit(map[bool]string{true: ","}[i > 0] + `"` + rustMember(f.name) + `":`)
			part := x + "." + f.name
			if t.packed {
				as := g.name("k")
				fmt.Fprintf(w, "\tlet %s = %s;\n", as, part)
				part = as
			}
			g.show(w, f.typ, part)
		}
		lit("}")
	}
}

// rustMember is how debug information calls a member.
func rustMember(name string) string {
	if name[0] == 'm' {
		return name
	}
	return "__" + name
}

// showMap prints objects where the keys are texts, else pairs.
func (g *rustGenerator) showMap(w *strings.Builder, t *rustType, x string) {
	k, v := g.name("k"), g.name("v")
	open, mid, end := `{"key":`, `,"value":`, "}"
	outer := [2]string{"[", "]"}
	if t.key.kind == "text" {
		open, mid, end, outer = "", ":", "", [2]string{"{", "}"}
	}
	lit := func(s string) {
		if s != "" {
			fmt.Fprintf(w, "\tlit(&mut o, %q);\n", s)
		}
	}
	lit(outer[0])
	fmt.Fprintf(w, "\tlet mut first = true;\n\tfor (%s, %s) in %s.iter() {\n\tif !first { lit(&mut o, \",\"); }\n\tfirst = false;\n", k, v, x)
	lit(open)
	g.show(w, t.key, "(*"+k+")")
	lit(mid)
	g.show(w, t.elem, "(*"+v+")")
	lit(end)
	fmt.Fprintf(w, "\t}\n")
	lit(outer[1])
}
