package debuginfo

import (
	"debug/dwarf"

	"kprobe/symbols/dwread"
)

// abbrevTable is a table of abbreviations by code. Codes usually count from 1.
type abbrevTable struct {
	dense  []abbrev // code i+1
	sparse map[uint64]*abbrev
}

// abbrev is the form of entries with one code.
type abbrev struct {
	code     uint64
	tag      dwarf.Tag
	children bool
	attrs    []attrSpec
}

type attrSpec struct {
	attr     dwarf.Attr
	form     form
	implicit int64 // of DW_FORM_implicit_const
}

// maxAttrs limits the attributes of one entry. Compilers write fewer than 40.
const maxAttrs = 256

func (t *abbrevTable) find(code uint64) *abbrev {
	if code-1 < uint64(len(t.dense)) {
		return &t.dense[code-1]
	}
	return t.sparse[code]
}

// abbrevsAt reads the table at an offset, once.
func (d *Data) abbrevsAt(off uint64) *abbrevTable {
	if t, ok := d.abbrevs.Load(off); ok {
		return t.(*abbrevTable)
	}
	t, _ := d.abbrevs.LoadOrStore(off, readAbbrevs(d.sec.Abbrev, off))
	return t.(*abbrevTable)
}

func readAbbrevs(b []byte, off uint64) *abbrevTable {
	t := &abbrevTable{}
	var specs []attrSpec
	r := dwread.At(b, off)
	for !r.Bad {
		a := abbrev{code: r.Uleb()}
		if a.code == 0 {
			break
		}
		a.tag, a.children = dwarf.Tag(r.Uleb()), r.U8() != 0
		from := len(specs)
		for !r.Bad {
			s := attrSpec{attr: dwarf.Attr(r.Uleb()), form: form(r.Uleb())}
			if s.form == formImplicitConst {
				s.implicit = r.Sleb()
			}
			if s.attr == 0 && s.form == 0 {
				break
			}
			if len(specs)-from == maxAttrs {
				return t
			}
			specs = append(specs, s)
		}
		if r.Bad {
			break
		}
		a.attrs = specs[from:len(specs):len(specs)]
		if a.code == uint64(len(t.dense))+1 {
			t.dense = append(t.dense, a)
			continue
		}
		if t.sparse == nil {
			t.sparse = map[uint64]*abbrev{}
		}
		t.sparse[a.code] = &a
	}
	return t
}
