package vars

import (
	"debug/dwarf"
	"strconv"
	"strings"

	"kprobe/symbols/debuginfo"
)

// array reads the dimensions of an array. The first one is the array's own; the others belong
// to its elements.
func (f *frame) array(t *ctype) {
	t.kind = kindArray
	elem := f.resolve(t.elem)
	t.count = f.dimension(t.entry, 0)
	inner := elem.size
	for i := 1; i < maxDimensions; i++ {
		n := f.dimension(t.entry, i)
		if n < 0 {
			break
		}
		if n > 0 && inner > 1<<40/n {
			n = 0
		}
		inner *= n
	}
	if t.size == 0 && t.count > 0 && inner < 1<<32 && t.count < 1<<30 {
		t.size = inner * t.count
	}
	t.name = f.arrayName(t, elem)
}

// arrayName is the name of an array in its language: [2]int, [i32; 2], int[2], int (*[2])(char).
func (f *frame) arrayName(t *ctype, elem ctype) string {
	switch l := f.language(t.entry); {
	case l.IsGo() && t.entry.Name() != "":
		return t.entry.Name()
	case l.IsRust():
		return "[" + elem.name + "; " + strconv.FormatInt(max(t.count, 0), 10) + "]"
	}
	lengths := dimensions(f, t.entry, 0)
	if i := strings.Index(elem.name, "*)"); i > 0 && !elem.alias && elem.kind == kindPointer && strings.Contains(elem.name, "(*") {
		return elem.name[:i+1] + lengths + elem.name[i+1:]
	}
	return elem.name + lengths
}

func dimensions(f *frame, e debuginfo.Entry, from int) string {
	s := ""
	for i := from; i < maxDimensions; i++ {
		n := f.dimension(e, i)
		switch {
		case n < 0:
			return s
		case n == 0:
			s += "[]"
		default:
			s += "[" + strconv.FormatInt(n, 10) + "]"
		}
	}
	return s
}

// dimension returns the number of elements of the i-th dimension: 0 if it is unknown, -1 if
// there is no such dimension.
func (f *frame) dimension(e debuginfo.Entry, i int) int64 {
	for c := range e.Children() {
		if c.Tag() != dwarf.TagSubrangeType {
			continue
		}
		if i > 0 {
			i--
			continue
		}
		if n, ok := c.Int(dwarf.AttrCount); ok && n >= 0 {
			return n
		}
		if n, ok := c.Int(dwarf.AttrUpperBound); ok {
			low, _ := c.Int(dwarf.AttrLowerBound)
			return max(0, n-low+1)
		}
		return 0
	}
	return -1
}
