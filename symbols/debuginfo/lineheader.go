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
	dirs       []string
	files      []string // by the numbers that programs use, with directories
	program    dwread.Reader
	addrSize   int
	dwarf64    bool
}

// lineName is the name of a file or directory as a header has it. Only files have a dir.
type lineName struct {
	file bool
	dir  uint64
	name []byte
}

// Limits on one line table.
const (
	maxFiles   = 1 << 18
	maxLineRow = 1 << 24
)

// lineHeaderAt reads the header of a unit's line program.
func (u *Unit) lineHeaderAt(off uint64) (h lineHeader, ok bool) {
	h, names, ok := u.openLines(off)
	if !ok {
		return h, false
	}
	h.eachName(u, &names, func(n lineName) bool {
		if n.file {
			h.files = append(h.files, fileName(h.dirs, n.dir, string(n.name)))
			return true
		}
		dir := string(n.name)
		if len(h.dirs) > 0 {
			dir = joinPath(h.dirs[0], dir)
		}
		h.dirs = append(h.dirs, dir)
		return true
	})
	return h, !names.Bad
}

// openLines reads the header of a unit's line program up to its names. names is at the first
// of them.
func (u *Unit) openLines(off uint64) (h lineHeader, names dwread.Reader, ok bool) {
	sec := u.data.sec.Line
	r := dwread.At(sec, off)
	n, d64 := r.Length()
	if r.Bad {
		return h, r, false
	}
	h.dwarf64 = d64
	r = dwread.At(sec[:r.At+n], r.At)
	h.version = int(r.U16())
	if h.version < 2 || h.version > 5 {
		return h, r, false
	}
	h.addrSize = u.addrSize
	if h.version >= 5 {
		h.addrSize = int(r.U8())
		if r.U8() != 0 { // segment selectors
			return h, r, false
		}
	}
	rest := r.Offset(d64)
	if r.Bad || rest > r.Left() {
		return h, r, false
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
		return h, r, false
	}
	h.program = dwread.At(r.B, start)
	return h, dwread.At(sec[:start], r.At), true
}

func fileName(dirs []string, dir uint64, name string) string {
	if dir < uint64(len(dirs)) {
		return joinPath(dirs[dir], name)
	}
	return path.Clean(name)
}

// eachName calls tell with the names that follow in the reader, first directories, then files,
// until tell returns false.
func (h *lineHeader) eachName(u *Unit, r *dwread.Reader, tell func(lineName) bool) {
	if h.version >= 5 {
		if h.table(u, r, tell, false) {
			h.table(u, r, tell, true)
		}
		return
	}
	// File 0 and directory 0 are the unit's own.
	more := tell(lineName{name: []byte(u.root().dir)})
	for range maxFiles {
		s := r.CString()
		if r.Bad || len(s) == 0 {
			break
		}
		more = more && tell(lineName{name: s})
	}
	more = more && tell(lineName{file: true, name: []byte(u.root().name)})
	for range maxFiles {
		s := r.CString()
		if r.Bad || len(s) == 0 || !more {
			return
		}
		dir := r.Uleb()
		r.Uleb()
		r.Uleb()
		more = tell(lineName{true, dir, s})
	}
}

// Kinds of contents of a version 5 table (DWARF 5, table 7.27).
const (
	lnctPath = 1
	lnctDir  = 2
)

// table reads the names of a table of version 5, whose columns describe themselves. more is
// false if tell has returned false.
func (h *lineHeader) table(u *Unit, r *dwread.Reader, tell func(lineName) bool, files bool) (more bool) {
	type column struct {
		kind uint64
		form form
	}
	fm := format{dwarf64: h.dwarf64, addrSize: h.addrSize, version: 5}
	cols := make([]column, r.U8())
	for i := range cols {
		cols[i] = column{r.Uleb(), form(r.Uleb())}
	}
	n := r.Uleb()
	told := uint64(0)
	for ; told < min(n, maxFiles) && !r.Bad && len(cols) > 0; told++ {
		l := lineName{file: files}
		before := r.At
		for _, c := range cols {
			v, b := value(r, c.form, fm, 0)
			switch c.kind {
			case lnctPath:
				l.name = u.stringOf(u.root(), Val{form: c.form, U: v, B: b})
			case lnctDir:
				l.dir = v
			}
		}
		if r.At == before {
			break // entries without bytes could be there in any number
		}
		if told == 0 && !files && len(l.name) == 0 { // it is where the compiler ran
			l.name = []byte(u.root().dir)
		}
		if !tell(l) {
			return false
		}
	}
	return told > 0 || files || tell(lineName{name: []byte(u.root().dir)})
}
