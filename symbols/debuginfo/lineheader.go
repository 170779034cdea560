package debuginfo

import (
	"path"

	"kprobe/symbols/dwread"
)

// lineHeader is the header of a line program (DWARF 5, 6.2.4).
type lineHeader struct {
	version    int
	minInst    uint64
	maxOps     uint64
	isStmt     bool
	lineBase   int64
	lineRange  uint64
	opcodeBase uint8
	lengths    []uint8
	files      []string // by the numbers that programs use, with directories
	program    dwread.Reader
	addrSize   int
}

// Bounds on one line table.
const (
	maxFiles   = 1 << 18
	maxLineRow = 1 << 24
)

// lineHeaderAt reads the header of a unit's line program.
func (u *Unit) lineHeaderAt(off uint64) (h lineHeader, ok bool) {
	sec := u.data.sec.Line
	r := dwread.At(sec, off)
	n, d64 := r.Length()
	if r.Bad {
		return h, false
	}
	r = dwread.At(sec[:r.At+n], r.At)
	h.version = int(r.U16())
	if h.version < 2 || h.version > 5 {
		return h, false
	}
	h.addrSize = u.addrSize
	if h.version >= 5 {
		h.addrSize = int(r.U8())
		if r.U8() != 0 { // segment selectors
			return h, false
		}
	}
	rest := r.Offset(d64)
	if r.Bad || rest > r.Left() {
		return h, false
	}
	start := r.At + rest
	h.minInst = uint64(r.U8())
	h.maxOps = 1
	if h.version >= 4 {
		h.maxOps = uint64(r.U8())
	}
	h.isStmt = r.U8() != 0
	h.lineBase, h.lineRange, h.opcodeBase = int64(int8(r.U8())), uint64(r.U8()), r.U8()
	if h.opcodeBase > 0 {
		h.lengths = r.Take(uint64(h.opcodeBase) - 1)
	}
	if r.Bad || h.lineRange == 0 || h.maxOps == 0 || h.opcodeBase == 0 {
		return h, false
	}
	head := dwread.At(sec[:start], r.At)
	if h.version >= 5 {
		h.readNames5(u, &head, d64)
	} else {
		h.readNames(u, &head)
	}
	h.program = dwread.At(r.B, start)
	return h, !head.Bad
}

// readNames reads the tables of versions 2 to 4. File 0 is the unit's own, and
// so is directory 0.
func (h *lineHeader) readNames(u *Unit, r *dwread.Reader) {
	dirs := []string{u.root().dir}
	for len(dirs) < maxFiles {
		s := r.CString()
		if r.Bad || len(s) == 0 {
			break
		}
		dirs = append(dirs, joinPath(dirs[0], string(s)))
	}
	h.files = []string{u.Path()}
	for len(h.files) < maxFiles {
		s := r.CString()
		if r.Bad || len(s) == 0 {
			return
		}
		dir := r.Uleb()
		r.Uleb()
		r.Uleb()
		h.files = append(h.files, fileName(dirs, dir, string(s)))
	}
}

func fileName(dirs []string, dir uint64, name string) string {
	if dir < uint64(len(dirs)) {
		return joinPath(dirs[dir], name)
	}
	return path.Clean(name)
}

// Kinds of contents of a version 5 table (DWARF 5, table 7.27).
const (
	lnctPath = 1
	lnctDir  = 2
)

// readNames5 reads the tables of version 5, whose columns describe themselves.
func (h *lineHeader) readNames5(u *Unit, r *dwread.Reader, d64 bool) {
	fm := format{dwarf64: d64, addrSize: h.addrSize, version: 5}
	table := func(dirs []string) []string {
		type column struct {
			kind uint64
			form form
		}
		cols := make([]column, r.U8())
		for i := range cols {
			cols[i] = column{r.Uleb(), form(r.Uleb())}
		}
		n := r.Uleb()
		var out []string
		for i := uint64(0); i < n && !r.Bad && len(out) < maxFiles && len(cols) > 0; i++ {
			var name string
			dir, before := uint64(0), r.At
			for _, c := range cols {
				v, b := value(r, c.form, fm, 0)
				switch c.kind {
				case lnctPath:
					name = string(u.stringOf(u.root(), Val{form: c.form, U: v, B: b}))
				case lnctDir:
					dir = v
				}
			}
			if r.At == before {
				return out // of what takes no room any number could be there
			}
			switch {
			case dirs != nil:
				name = fileName(dirs, dir, name)
			case len(out) > 0:
				name = joinPath(out[0], name)
			case name == "": // the first is where the compiler ran
				name = u.root().dir
			}
			out = append(out, name)
		}
		return out
	}
	dirs := table(nil)
	if dirs == nil {
		dirs = []string{u.root().dir}
	}
	h.files = table(dirs)
}
