package fetch

import (
	"bytes"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"kprobe/internal/quote"
)

// appendContent appends a container's value: {1,2}, {["a"]=1}, a pointer's and an
// optional's as what they lead to, and ... for what was not looked at.
func (c *Content) appendText(dst []byte, v *Value, sym Symbolizer) []byte {
	switch {
	case v.Fault:
		return append(dst, "(fault)"...)
	case v.Invalid:
		return append(dst, "(invalid)"...)
	case v.None && v.Truncated:
		return append(dst, "{...}"...)
	case v.None:
		return append(dst, c.none()...)
	}
	switch c.Kind {
	case ContentPlain:
		dst = AppendText(dst, c.Type, *v, sym)
		if c.Type.Layout != nil {
			dst = append(dst, c.Type.Layout.Unit...)
		}
		return dst
	case ContentText:
		dst = AppendText(dst, Type{Base: String, Size: 8}, Value{Bytes: v.Bytes, Truncated: v.Truncated}, sym)
		return dst
	case ContentTime:
		return append(dst, v.Bytes...)
	case ContentPointer, ContentOptional:
		if len(v.Elems) == 1 {
			return c.Elem.appendText(dst, &v.Elems[0], sym)
		}
		return dst
	case ContentInterface:
		if len(v.Elems) != 1 || v.dynamic == nil {
			return dst
		}
		dst = append(quote.AppendPlain(dst, v.dynamic.Name), '(')
		return append(v.dynamic.appendText(dst, &v.Elems[0], sym), ')')
	case ContentVariant:
		return c.appendVariant(dst, v, sym)
	case ContentStruct:
		if c.Style == StyleHidden && len(v.Elems) == 1 {
			return c.Members[0].Elem.appendText(dst, &v.Elems[0], sym)
		}
		dst = append(dst, '{')
		for i := range v.Elems {
			if i > 0 {
				dst = append(dst, ',')
			}
			if m := &c.Members[i]; c.Style != StyleTuple && m.Name != "" {
				dst = append(append(dst, m.Name...), '=')
			}
			dst = c.Members[i].Elem.appendText(dst, &v.Elems[i], sym)
		}
		return append(dst, '}')
	}
	dst = append(dst, '{')
	for i := range v.Elems {
		if i > 0 {
			dst = append(dst, ',')
		}
		e := &v.Elems[i]
		if key, val := c.pair(); val != nil && len(e.Elems) == 2 && !e.Fault {
			dst = append(key.appendText(append(dst, '['), &e.Elems[0], sym), "]="...)
			dst = val.appendText(dst, &e.Elems[1], sym)
			continue
		}
		if key, val := c.pair(); val == nil {
			dst = key.appendText(dst, e, sym)
		} else {
			dst = c.Elem.appendText(dst, e, sym)
		}
	}
	if v.Truncated {
		if len(v.Elems) > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, "..."...)
	}
	return append(dst, '}')
}

// none is how nothing is printed.
func (c *Content) none() string {
	switch c.Kind {
	case ContentOptional:
		return "nullopt"
	case ContentInterface, ContentMap, ContentSequence:
		return "nil"
	}
	return "0x0"
}

// pair is what an element's key and value are; val is nil of containers without keys.
func (c *Content) pair() (key, val *Content) {
	switch {
	case c.Kind == ContentBTree:
		return c.BTree.Key, c.BTree.Val
	case c.Kind == ContentMap:
		return c.Map.KeyElem, c.Map.ValElem
	case (c.Style == StyleMap || c.Style == StyleMultimap) && c.Elem.Kind == ContentStruct && len(c.Elem.Members) == 2:
		return c.Elem.Members[0].Elem, c.Elem.Members[1].Elem
	}
	return c.Elem, nil
}

func (c *Content) appendVariant(dst []byte, v *Value, sym Symbolizer) []byte {
	if v.Int >= uint64(len(c.Members)) || len(v.Elems) != 1 {
		return dst
	}
	m := &c.Members[v.Int]
	if c.Style == StyleHidden {
		return m.Elem.appendText(dst, &v.Elems[0], sym)
	}
	dst = append(dst, '{')
	if c.Style == StyleIndex {
		dst = append(strconv.AppendUint(append(dst, '['), v.Int, 10), ']')
	} else {
		dst = append(dst, m.Name...)
	}
	if m.Elem.Size == 0 || m.Elem.empty() {
		return append(dst, '}')
	}
	dst = append(dst, '=')
	return append(m.Elem.appendText(dst, &v.Elems[0], sym), '}')
}

// empty reports whether the content has no member.
func (c *Content) empty() bool {
	return c.Kind == ContentStruct && len(c.Members) == 0 || c.Kind == ContentPlain && c.Type.Layout != nil && c.Type.Layout.Members != nil && len(c.Type.Layout.Members) == 0
}

// appendJSON is appendText for JSON: lists are arrays, maps whose keys are text are
// objects, and arrays of {"key":…,"value":…} otherwise. What is cut is missing:
// Value.Cut tells.
func (c *Content) appendJSON(dst []byte, v *Value, sym Symbolizer) []byte {
	if v.Fault || v.Invalid || v.None {
		return append(dst, "null"...)
	}
	switch c.Kind {
	case ContentPlain:
		return AppendJSON(dst, c.Type, *v, sym)
	case ContentText, ContentTime:
		return quote.AppendJSON(dst, v.Bytes)
	case ContentPointer, ContentOptional:
		if len(v.Elems) == 1 {
			return c.Elem.appendJSON(dst, &v.Elems[0], sym)
		}
		return append(dst, "null"...)
	case ContentInterface:
		if len(v.Elems) != 1 || v.dynamic == nil {
			return append(dst, "null"...)
		}
		dst = quote.AppendJSON(append(dst, `{"type":`...), []byte(v.dynamic.Name))
		dst = v.dynamic.appendJSON(append(dst, `,"value":`...), &v.Elems[0], sym)
		return append(dst, '}')
	case ContentVariant:
		return c.appendVariantJSON(dst, v, sym)
	case ContentStruct:
		return c.appendStructJSON(dst, v, sym)
	}
	key, val := c.pair()
	if val == nil {
		dst = append(dst, '[')
		for i := range v.Elems {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = key.appendJSON(dst, &v.Elems[i], sym)
		}
		return append(dst, ']')
	}
	object := key.isText() && c.Style != StyleMultimap
	open, end := byte('['), byte(']')
	if object {
		open, end = '{', '}'
	}
	dst = append(dst, open)
	for i := range v.Elems {
		if i > 0 {
			dst = append(dst, ',')
		}
		e := v.Elems[i].Elems
		switch {
		case len(e) != 2:
			if object {
				dst = append(key.appendKeyOf(dst, v, i), ':')
			}
			dst = append(dst, "null"...)
		case object:
			dst = append(key.appendKeyOf(dst, v, i), ':')
			dst = val.appendJSON(dst, &e[1], sym)
		default:
			dst = key.appendJSON(append(dst, `{"key":`...), &e[0], sym)
			dst = append(val.appendJSON(append(dst, `,"value":`...), &e[1], sym), '}')
		}
	}
	return append(dst, end)
}

func (c *Content) appendVariantJSON(dst []byte, v *Value, sym Symbolizer) []byte {
	if v.Int >= uint64(len(c.Members)) || len(v.Elems) != 1 {
		return append(dst, "null"...)
	}
	m := &c.Members[v.Int]
	switch c.Style {
	case StyleHidden:
		return m.Elem.appendJSON(dst, &v.Elems[0], sym)
	case StyleIndex:
		dst = strconv.AppendUint(append(dst, `{"index":`...), v.Int, 10)
		dst = append(dst, `,"value":`...)
	default:
		dst = append(quote.AppendJSON(append(dst, '{'), []byte(m.Name)), ':')
	}
	return append(m.Elem.appendJSON(dst, &v.Elems[0], sym), '}')
}

func (c *Content) appendStructJSON(dst []byte, v *Value, sym Symbolizer) []byte {
	if c.Style == StyleHidden && len(v.Elems) == 1 {
		return c.Members[0].Elem.appendJSON(dst, &v.Elems[0], sym)
	}
	open, end := byte('{'), byte('}')
	if c.Style == StyleTuple {
		open, end = '[', ']'
	}
	dst = append(dst, open)
	for i := range v.Elems {
		if i > 0 {
			dst = append(dst, ',')
		}
		if c.Style != StyleTuple {
			dst = append(appendKey(dst, i, func(i int) string { return c.Members[i].Name }), ':')
		}
		dst = c.Members[i].Elem.appendJSON(dst, &v.Elems[i], sym)
	}
	return append(dst, end)
}

// appendKeyOf appends the key of the i-th pair of a map as that of an object. Keys that were cut, or are not UTF-8, may
// look the same: the second gets a number, with which it is like no other key of the map.
func (c *Content) appendKeyOf(dst []byte, v *Value, i int) []byte {
	key := c.keyOf(v, i)
	nth := 1
	for j := range i {
		if sameInJSON(key, c.keyOf(v, j)) {
			nth++
		}
	}
	if nth == 1 {
		return quote.AppendJSON(dst, key)
	}
	for n := 2; ; n++ {
		own := []byte(quote.Numbered(string(key), n))
		has := false
		for j := range v.Elems {
			has = has || sameInJSON(own, c.keyOf(v, j))
		}
		if has {
			continue
		}
		if nth--; nth == 1 {
			return quote.AppendJSON(dst, own)
		}
	}
}

// keyOf is the text of the i-th pair's key; nothing if the pair could not be read.
func (c *Content) keyOf(v *Value, i int) []byte {
	if e := v.Elems[i].Elems; len(e) == 2 {
		return c.textOf(&e[0])
	}
	return nil
}

// sameInJSON reports whether two texts are one string in JSON, where each byte that is no UTF-8 is U+FFFD.
func sameInJSON(a, b []byte) bool {
	return bytes.Equal(a, b) || bytes.ContainsRune(a, utf8.RuneError) && slices.Equal([]rune(string(a)), []rune(string(b)))
}

// isText reports whether the content is a text.
func (c *Content) isText() bool {
	return c.Kind == ContentText || c.Kind == ContentVariant && c.Style == StyleHidden && c.Members[0].Elem.Kind == ContentText
}

// textOf is a text's bytes.
func (c *Content) textOf(v *Value) []byte {
	if c.Kind == ContentVariant && len(v.Elems) == 1 {
		return v.Elems[0].Bytes
	}
	return v.Bytes
}

// appendGoTime writes a time.Time, in UTC: wall has, with its highest bit, 33 bits
// of seconds since 1885 and 30 of nanoseconds, else ext has the seconds since year 1
// (time.go).
func appendGoTime(dst []byte, wall, ext uint64) []byte {
	const (
		toUnix      = -(1969*365 + 1969/4 - 1969/100 + 1969/400) * 86400
		wallToYear1 = (1884*365 + 1884/4 - 1884/100 + 1884/400) * 86400
	)
	sec, nsec := int64(ext), int64(wall&(1<<30-1))
	if wall>>63 != 0 {
		sec = wallToYear1 + int64(wall<<1>>31)
	}
	return time.Unix(sec+toUnix, nsec).UTC().AppendFormat(dst, time.RFC3339Nano)
}
