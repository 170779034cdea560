package vars

import (
	"cmp"
	"debug/dwarf"
	"errors"
	"fmt"
	"slices"

	"kprobe/fetch"
	"kprobe/symbols/debuginfo"
)

// maxParts limits the parts that one variable is split into.
const maxParts = 64

// parts splits a variable that lies in several places, such as a structure in registers, into
// its members. Their names are those that a definition accepts (list.len). Members that can't
// be read are left out. If none can, that is an error.
func (f *frame) parts(name string, v value) ([]fetch.Variable, error) {
	p := partList{f: f}
	if err := p.add(name, v, 0); err != nil {
		return nil, err
	}
	if len(p.vars) == 0 {
		return nil, fmt.Errorf("%s: %w", name, cmp.Or(p.missing, errPieces))
	}
	return p.vars, nil
}

type partList struct {
	f       *frame
	vars    []fetch.Variable
	types   []ctype
	depths  []int // how many structures down
	missing error // the error of a part that can't be read
}

func (p *partList) add(name string, v value, depth int) error {
	v, err := v.unreference()
	if err != nil {
		return err
	}
	if v.t = p.f.whole(v.t); v.t.kind != kindStruct || p.f.tooDeep(depth) {
		return errPieces
	}
	if !p.f.asMembers(v.t) {
		return errPieces // a Rust enum has only one of its variants at a time
	}
	for _, m := range p.f.members(v.t) {
		if m.base && m.typ.kind == kindStruct {
			inner := v
			if inner.p, err = p.f.partOf(v.p, m.off, m.typ); err == nil {
				inner.t = m.typ
				err = p.add(name, inner, depth+1)
			}
			if err != nil {
				p.missing = err
			}
			continue
		}
		if m.name == "" || m.static.Unit() != nil || !fetch.IsName(m.name) {
			continue
		}
		full := name + "." + m.name
		if len(full) > fetch.MaxArgName || len(p.vars) == maxParts {
			return nil
		}
		part, err := v.field(m.name)
		if err != nil {
			p.missing = err
			continue
		}
		out, err := part.variable(full)
		if err == nil && out.Parts != nil && out.Type.Base != fetch.Container || errors.Is(err, errPieces) {
			if inner := p.add(full, part, depth+1); inner == nil {
				continue
			} else if err != nil {
				err = inner
			}
		}
		if err != nil {
			p.missing = err
			continue
		}
		// A definition can name only one of several members of a name: the first blank one of a Go structure, and not that
		// of a base class.
		switch i := slices.IndexFunc(p.vars, func(o fetch.Variable) bool { return o.Name == full }); {
		case i < 0:
			p.vars, p.types, p.depths = append(p.vars, out), append(p.types, part.t), append(p.depths, depth)
		case depth < p.depths[i]:
			p.vars[i], p.types[i], p.depths[i] = out, part.t, depth
		}
	}
	return nil
}

// declaredParts is declared for a variable in several places.
func (f *frame) declaredParts(e debuginfo.Entry) ([]fetch.Variable, error) {
	v, err := f.load(e)
	if err != nil {
		return nil, err
	}
	return f.parts(e.Name(), v)
}

// describeParts describes the parts of such a variable.
func (f *frame) describeParts(e debuginfo.Entry) (out []Description, ok bool) {
	v, err := f.load(e)
	if err != nil {
		return nil, false
	}
	p := partList{f: f}
	if p.add(e.Name(), v, 0) != nil || len(p.vars) == 0 {
		return nil, false
	}
	for i := range p.vars {
		one := f.description(p.vars[i].Name, p.types[i], p.vars[i], nil)
		one.Param = e.Tag() == dwarf.TagFormalParameter
		out = append(out, one)
	}
	return out, true
}
