package vars

import (
	"debug/dwarf"
	"strings"

	"kprobe/fetch"
)

// cxxText describes a C++ string of any kind of characters, or a view of one. value.text
// handles those strings of bytes that have an address and a length as members.
func (f *frame) cxxText(v value, c *fetch.Content) bool {
	elem, ok := f.parameter(v.t, 0)
	if !ok || elem.kind != kindChar && !isWide(elem) {
		return false
	}
	if !isWide(elem) {
		return f.cxxString(v, c)
	}
	p, ok := v.loaded("_M_dataplus._M_p|_M_str")
	n, ok2 := v.loaded("_M_string_length|_M_len")
	if ok && ok2 {
		c.Kind, c.Ptr, c.Count = fetch.ContentText, p, n
	} else if !f.cxxString(v, c) {
		return false
	}
	c.Stride = elem.size
	for i := range c.Members {
		c.Members[i].Elem.Stride = elem.size
	}
	return true
}

// isWide reports whether a character has more than one byte: wchar_t, char16_t, char32_t.
func isWide(t ctype) bool {
	switch name := t.entry.Name(); {
	case t.size == 4 && t.kind == kindInt:
		return name == "wchar_t"
	case t.size == 2 || t.size == 4:
		return t.kind == kindChar && strings.HasPrefix(name, "char")
	}
	return false
}

// wideText describes the text that a pointer to wide characters leads to.
func (f *frame) wideText(t ctype, c *fetch.Content) bool {
	if t.elem.IsZero() || t.stars > 0 {
		return false
	}
	e := f.resolve(t.elem)
	if !isWide(e) {
		return false
	}
	c.Kind, c.Size, c.Stride, c.Ptr = fetch.ContentText, 8, e.size, word(0)
	return true
}

// cxxString describes a string of libc++, which holds short texts itself, or a string of
// libstdc++ from before C++11's ABI, whose length lies before its bytes.
func (f *frame) cxxString(v value, c *fetch.Content) bool {
	if p, ok := v.loaded("__data_|__data"); ok { // a view
		n, ok := v.loaded("__size_|__size")
		c.Kind, c.Ptr, c.Count = fetch.ContentText, p, n
		return ok
	}
	rep, ok := v.follow("__r_.__value_|__rep_")
	if !ok {
		return f.sharedString(v, c)
	}
	long, ok := rep.loaded("__l.__data_")
	size, ok2 := rep.loaded("__l.__size_")
	short, ok3 := rep.follow("__s.__data_")
	at, ok4 := address(short)
	n, ok5 := rep.loaded("__s.__size_")
	if !ok || !ok2 || !ok3 || !ok4 || !ok5 {
		return false
	}
	tag, isBit := rep.loaded("__s.__is_long_")
	if !isBit { // it is the lowest bit of a short string's length
		tag = append(append(fetch.Trail{}, n...), fetch.Step{Op: fetch.StepAnd, Imm: 1})
		n = append(append(fetch.Trail{}, n...), fetch.Step{Op: fetch.StepShr, Imm: 1})
	}
	text := func(p, n fetch.Trail) *fetch.Content {
		return &fetch.Content{Kind: fetch.ContentText, Name: c.Name, Size: c.Size, Ptr: append(fetch.Trail{}, p...), Count: n}
	}
	c.Kind, c.Tag, c.Style = fetch.ContentVariant, tag, fetch.StyleHidden
	c.Members = []fetch.ContentMember{
		{Elem: text(at, n), Cases: []uint64{0}},
		{Elem: text(long, size), Cases: []uint64{1}},
	}
	return true
}

// sharedString describes libstdc++'s old string. Its class says how large the header before
// the bytes is (_Rep), and where in the header the length lies.
func (f *frame) sharedString(v value, c *fetch.Content) bool {
	p, ok := v.loaded("_M_dataplus._M_p")
	if !ok {
		return false
	}
	if _, ok := v.follow("_M_string_length"); ok {
		return false // a string of the other ABI, which value.text handles
	}
	for e := range v.t.entry.Children() {
		if e.Tag() != dwarf.TagStructType || e.Name() != "_Rep" {
			continue
		}
		rep := f.whole(f.resolve(e.Ref()))
		n, ok := f.start(rep).follow("_M_length")
		off, isConst := n.p.sym.isConst()
		if !ok || !isConst || rep.size <= 0 {
			return false
		}
		c.Kind, c.Ptr = fetch.ContentText, p
		c.Count = append(append(fetch.Trail{}, p...), fetch.Step{Op: fetch.StepLoad, Imm: off - uint64(rep.size), Size: 8})
		return true
	}
	return false
}
