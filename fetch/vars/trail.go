package vars

import (
	"debug/dwarf"
	"strings"

	"kprobe/fetch"
)

func word(off int64) fetch.Trail {
	return fetch.Trail{{Op: fetch.StepLoad, Imm: uint64(off), Size: 8}}
}

// start returns a value of a type at address 0. Trails begin there.
func (f *frame) start(t ctype) value {
	return value{f: f, t: t, p: place{kind: inMemory, sym: constant(0)}}
}

// follow goes from a value to its members. Alternatives are separated by |; the first one that
// exists is taken.
func (v value) follow(path string) (value, bool) {
	for alt := range strings.SplitSeq(path, "|") {
		w, ok := v, true
		if alt != "." {
			for name := range strings.SplitSeq(alt, ".") {
				var err error
				if w, err = w.field(name); err != nil {
					ok = false
					break
				}
			}
		}
		if ok {
			return w, true
		}
	}
	return v, false
}

// address returns the trail to the place of a value.
func address(v value) (fetch.Trail, bool) {
	if v.p.kind != inMemory || v.p.sym.src.Source != fetch.SourceImm {
		return nil, false
	}
	s := v.p.sym
	out := make(fetch.Trail, 0, len(s.steps)+1)
	if s.src.Imm != 0 {
		out = append(out, fetch.Step{Op: fetch.StepAdd, Imm: s.src.Imm})
	}
	for _, t := range s.steps {
		if n := len(out); n > 0 && out[n-1].Op == fetch.StepAdd && t.Op == fetch.StepLoad {
			t.Imm += out[n-1].Imm
			out[n-1] = t
			continue
		}
		out = append(out, t)
	}
	return out, true
}

// load returns the trail to a number's or a pointer's value.
func load(v value) (fetch.Trail, bool) {
	size := v.t.size
	switch v.t.kind {
	case kindInt, kindUint, kindChar, kindBool, kindEnum:
	case kindPointer, kindReference:
		size = 8
	default:
		return nil, false
	}
	if size != 1 && size != 2 && size != 4 && size != 8 {
		return nil, false
	}
	at, ok := address(v)
	if !ok {
		return nil, false
	}
	if n := len(at); n > 0 && at[n-1].Op == fetch.StepAdd {
		at[n-1] = fetch.Step{Op: fetch.StepLoad, Imm: at[n-1].Imm, Size: uint8(size)}
	} else {
		at = append(at, fetch.Step{Op: fetch.StepLoad, Size: uint8(size)})
	}
	if v.width != 0 {
		at = append(at, fetch.Step{Op: fetch.StepShr, Imm: uint64(v.bit)}, fetch.Step{Op: fetch.StepAnd, Imm: 1<<v.width - 1})
	}
	return at, true
}

// loaded is load for a member that a path leads to.
func (v value) loaded(path string) (fetch.Trail, bool) {
	w, ok := v.follow(path)
	if !ok {
		return nil, false
	}
	for range maxNested { // go through wrappers of a single number or pointer
		if w.t.kind != kindStruct {
			break
		}
		if w, ok = w.only(); !ok {
			return nil, false
		}
	}
	return load(w)
}

// only returns the member of a wrapper.
func (v value) only() (value, bool) {
	if w, ok := v.firstPointer(); ok {
		return w, true
	}
	for _, name := range [...]string{"__value_", "__0", "pointer"} {
		if w, err := v.field(name); err == nil {
			return w, true
		}
	}
	return v, false
}

// parameter returns the i-th type parameter of a template or a generic type.
func (f *frame) parameter(t ctype, i int) (ctype, bool) {
	const pack dwarf.Tag = 0x4107 // DW_TAG_GNU_template_parameter_pack
	for c := range t.entry.Children() {
		switch c.Tag() {
		case dwarf.TagTemplateTypeParameter:
			if i == 0 {
				r, ok := c.RefTo(dwarf.AttrType)
				return f.resolve(r), ok
			}
			i--
		case pack:
			for p := range c.Children() {
				if p.Tag() != dwarf.TagTemplateTypeParameter {
					continue
				}
				if i == 0 {
					r, ok := p.RefTo(dwarf.AttrType)
					return f.resolve(r), ok
				}
				i--
			}
		}
	}
	return ctype{}, false
}

// typedef returns a type that a class has a name for. If that is a pointer, it returns the
// type that the pointer leads to.
func (f *frame) typedef(t ctype, names string) (ctype, bool) {
	for name := range strings.SplitSeq(names, "|") {
		for c := range t.entry.Children() {
			if c.Tag() != dwarf.TagTypedef || c.Name() != name {
				continue
			}
			out := f.resolve(c.Ref())
			if out.kind == kindPointer && !out.elem.IsZero() {
				out = f.resolve(out.elem)
			}
			if out = f.whole(out); out.size > 0 {
				return out, true
			}
		}
	}
	return ctype{}, false
}
