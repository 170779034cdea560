package fetch

import (
	"strconv"
	"unicode/utf8"

	"kprobe/internal/quote"
)

// character is a Char's value as text in UTF-8. A byte is the character of its
// number, so that none is lost.
func (t Type) character(v uint64) []byte {
	if t.Size == 1 {
		v &= 0xff
	}
	return utf8.AppendRune(nil, rune(min(v, utf8.MaxRune+1)))
}

// What is printed, in <>, of values that are not there.
const (
	OptimizedOut = "optimized out" // the compiler has left it out, or it is nowhere at the place
	NotRecorded  = "not recorded"  // of a type, or at a time, that can't be recorded
)

// GoneVariable stands in a list for a variable that has no value, and why.
func GoneVariable(name, why string) Variable {
	return Variable{Name: name, Chain: Chain{Source: SourceImm}, Type: Type{Base: Hex, Size: 8, Layout: &Layout{Gone: why}}, AtReturn: true}
}

// appendLayout appends a value as its layout says: enumerators by name, true
// and false, structures as {a=1,b=2}, arrays as {1,2}, and ... for what was not
// recorded. done is false when the layout says nothing of it.
func (t Type) appendLayout(dst []byte, v Value, sym Symbolizer) (out []byte, done bool) {
	l := t.Layout
	switch {
	case l.Gone != "":
		return append(append(append(dst, '<'), l.Gone...), '>'), true
	case l.Wide != 0 && t.Count == 2:
		return l.Wide.appendNumber(dst, v.Bytes), true
	case l.Members != nil:
		dst = append(dst, '{')
		sep := false
		for i := range min(len(l.Members), len(v.Elems)) {
			if !l.shown(i, &v) {
				continue
			}
			if sep {
				dst = append(dst, ',')
			}
			sep = true
			m := &l.Members[i]
			dst = quote.AppendPlain(dst, m.Name)
			if m.empty() {
				continue
			}
			if m.Name != "" {
				dst = append(dst, '=')
			}
			dst = AppendText(dst, l.Members[i].Type, v.Elems[i], sym)
		}
		if l.More && sep {
			dst = append(dst, ',')
		}
		if l.More {
			dst = append(dst, "..."...)
		}
		return append(dst, '}'), true
	case l.Text && t.Count != 0:
		return v.appendQuoted(dst), true
	case t.Count != 0:
		return dst, false
	case l.Bool:
		return appendBool(dst, v.Int), true
	}
	if name, ok := l.enumerator(v.Int); ok {
		return quote.AppendPlain(dst, name), true
	}
	if flags, ok := l.appendFlags(nil, v.Int); ok {
		return quote.AppendPlain(dst, flags), true
	}
	return dst, false
}

// appendLayoutJSON is appendLayout for JSON: structures are objects,
// enumerators strings, bools true and false. The members of a member without a
// name are the structure's own, as in its source.
func (t Type) appendLayoutJSON(dst []byte, v Value, sym Symbolizer) (out []byte, done bool) {
	l := t.Layout
	switch {
	case l.Gone != "":
		return append(dst, "null"...), true
	case l.Wide != 0 && t.Count == 2:
		return l.Wide.appendJSON(dst, v.Bytes), true
	case l.Members != nil:
		open, end := byte('{'), byte('}')
		if l.Array {
			open, end = '[', ']'
		}
		dst = append(dst, open)
		dst, _ = l.appendMembers(dst, v, sym, false)
		return append(dst, end), true
	case l.Text && t.Count != 0:
		return quote.AppendJSON(dst, v.Bytes), true
	case t.Count != 0:
		return dst, false
	case l.Bool:
		return appendBool(dst, v.Int), true
	}
	if name, ok := l.enumerator(v.Int); ok {
		return quote.AppendJSON(dst, name), true
	}
	if flags, ok := l.appendFlags(nil, v.Int); ok {
		return quote.AppendJSON(dst, flags), true
	}
	return dst, false
}

// appendBool appends true or false. A byte that is neither is a number, as in gdb: it was not
// stored as a bool, and a filter takes it for neither, too.
func appendBool(dst []byte, v uint64) []byte {
	if v > 1 {
		return strconv.AppendUint(dst, v, 10)
	}
	return strconv.AppendBool(dst, v == 1)
}

// blank is the name of members that a Go structure may have several of.
const blank = "_"

// appendKey appends the key of the i-th member of an object. A key that occurs twice would be one member for most readers
// of JSON: the second blank member is "_#2", which no member is called.
func appendKey(dst []byte, i int, name func(i int) string) []byte {
	if name(i) != blank {
		return quote.AppendJSON(dst, name(i))
	}
	n := 1
	for j := range i {
		if name(j) == blank {
			n++
		}
	}
	return quote.AppendJSON(dst, quote.Numbered(blank, n))
}

// appendMembers appends what stands between the brackets of an object or a list;
// sep says that something stands there already.
func (l *Layout) appendMembers(dst []byte, v Value, sym Symbolizer, sep bool) ([]byte, bool) {
	for i := range min(len(l.Members), len(v.Elems)) {
		if !l.shown(i, &v) {
			continue
		}
		m := &l.Members[i]
		if inner := m.Type.Layout; m.Name == "" && !l.Array && inner != nil && inner.Members != nil && !inner.Array && !v.Elems[i].Fault {
			dst, sep = inner.appendMembers(dst, v.Elems[i], sym, sep)
			continue
		}
		if sep {
			dst = append(dst, ',')
		}
		sep = true
		if !l.Array {
			dst = append(appendKey(dst, i, func(i int) string { return l.Members[i].Name }), ':')
		}
		if m.empty() {
			dst = append(dst, "{}"...)
			continue
		}
		dst = AppendJSON(dst, m.Type, v.Elems[i], sym)
	}
	return dst, sep
}
