package symbols

import (
	"bytes"
	"encoding/binary"
	"math"
	"path"
)

// goLines are the files and lines of Go's code as its runtime's table of
// functions has them, in files without debug information too (cmd/link/internal/ld/pcln.go
// and runtime/symtab.go in Go's source).
type goLines struct {
	goFuncs
	files, units uint64 // offsets in b: names of files, units' lists of them
	size         uint64 // of the code behind text
	trees        []byte // what the runtime calls go:func.*, where inlined calls are; nil: not found
}

// goRow is a run of code of one line.
type goRow struct {
	at, end uint32 // distances from the start of the text
	file    uint32 // offset of its name; goNoFile: none
	line    int
	tree    int32 // which inlined call it is of, -1: of the function's own code
}

const (
	goNoFile     = math.MaxUint32
	goPCTree     = 2 // index of the table that tells inlined calls (internal/abi.PCDATA_InlTreeIndex)
	goTreeData   = 3 // and of their list (internal/abi.FUNCDATA_InlTree)
	goCallSize   = 16
	goStartLine  = 36 // offset of the line of the function's start, since 1.20
	goFuncFiles  = 20
	goFuncLines  = 24
	goFuncTables = 28
	goFuncUnit   = 32
)

// goLineTable is the file's table; nil where there is none that is known.
func (f *File) goLineTable() *goLines {
	return f.goRows.get(func() (t *goLines) {
		var err error
		defer rescue(f.Path, &err)
		return f.im.goLines()
	})
}

func (im *image) goLines() *goLines {
	t := &goLines{goFuncs: im.goFuncs()}
	if t.n == 0 {
		return nil
	}
	le := binary.LittleEndian
	t.units, t.files = le.Uint64(t.b[40:]), le.Uint64(t.b[48:])
	if size := uint64(len(t.b)); t.units > size || t.files > size || t.pcs > size || t.quant == 0 {
		return nil
	}
	seg := im.load(t.text)
	if seg == nil {
		return nil
	}
	t.size = uint64(seg.vaddr) + seg.filesz - uint64(t.text)
	t.trees = im.goTrees(t)
	return t
}

// each goes through the functions in the order of their code. What overlaps one before,
// or lies behind the code, no linker made: there are no more rows than bytes of code.
func (t *goLines) each(do func(fn *goFunc) error) error {
	last := uint32(0)
	for i := range t.n {
		fn, ok := t.function(i)
		if !ok || fn.start < last {
			continue
		}
		last = fn.end
		if err := do(&fn); err != nil {
			return err
		}
	}
	return nil
}

// goFunc is one function of the table.
type goFunc struct {
	start, end uint32 // distances from the start of the text
	rest       uint64 // offset in tab of its description
}

// function returns the i-th function; ok is false where its description is cut.
func (t *goLines) function(i uint64) (fn goFunc, ok bool) {
	start, end, rest := t.at(i)
	fn = goFunc{uint32(start - t.text), uint32(end - t.text), rest}
	return fn, fn.start <= fn.end && uint64(fn.end) <= t.size && rest+uint64(t.flags)+3 <= uint64(len(t.tab))
}

// functionAt finds the function that holds an address.
func (t *goLines) functionAt(v Vaddr) (fn goFunc, ok bool) {
	lo, hi := uint64(0), t.n
	for lo < hi {
		mid := lo + (hi-lo)/2
		if start, _, _ := t.at(mid); start <= v {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 {
		return fn, false
	}
	if _, end, _ := t.at(lo - 1); v >= end {
		return fn, false
	}
	return t.function(lo - 1)
}

func (t *goLines) u32(fn *goFunc, at uint64) uint32 {
	if fn.rest+at+4 > uint64(len(t.tab)) {
		return 0
	}
	return binary.LittleEndian.Uint32(t.tab[fn.rest+at:])
}

// firstLine is where a function is declared; 0 is unknown.
func (t *goLines) firstLine(fn *goFunc) int {
	if t.flags > goStartLine+4 {
		return int(int32(t.u32(fn, goStartLine)))
	}
	rows := t.rows(fn, nil)
	if len(rows) == 0 {
		return 0
	}
	return rows[0].line
}

// treeTable is the offset of the table of a function's inlined calls by address, and
// offset that of their list; 0 and false are none.
func (t *goLines) treeTable(fn *goFunc) (table uint32, list uint32, ok bool) {
	base, tables := uint64(t.flags)+3, uint64(t.u32(fn, goFuncTables))
	if tables <= goPCTree {
		return 0, 0, false
	}
	table = t.u32(fn, base+4*goPCTree)
	if at := fn.rest + uint64(t.flags) + 2; at >= uint64(len(t.tab)) || t.tab[at] <= goTreeData {
		return table, 0, false
	}
	list = t.u32(fn, base+4*tables+4*goTreeData)
	return table, list, list != math.MaxUint32
}

// rows are a function's runs of code, by address. want, where it isn't nil, is asked
// for the offsets of the names of files first: of a function that has none of them
// there are no rows.
func (t *goLines) rows(fn *goFunc, want func(file uint32) bool) []goRow {
	unit := uint64(t.u32(fn, goFuncUnit))
	fileOf := func(i int32) uint32 {
		at := t.units + (unit+uint64(uint32(i)))*4
		if i < 0 || at+4 > uint64(len(t.b)) {
			return goNoFile
		}
		return binary.LittleEndian.Uint32(t.b[at:])
	}
	if want != nil {
		any, files := false, t.values(fn, t.u32(fn, goFuncFiles))
		for files.end < fn.end && files.next() && !any {
			any = want(fileOf(files.value))
		}
		if !any {
			return nil
		}
	}
	table, _, _ := t.treeTable(fn)
	files, lines, trees := t.values(fn, t.u32(fn, goFuncFiles)), t.values(fn, t.u32(fn, goFuncLines)), t.values(fn, table)
	if !files.next() || !lines.next() {
		return nil
	}
	trees.next()
	var out []goRow
	for at := fn.start; at < fn.end; {
		end := min(files.end, lines.end, fn.end)
		tree := int32(-1)
		if trees.end > at {
			tree, end = trees.value, min(end, trees.end)
		}
		out = append(out, goRow{at: at, end: end, file: fileOf(files.value), line: max(int(lines.value), 0), tree: tree})
		if at = end; files.end == at && !files.next() || lines.end == at && !lines.next() {
			break
		}
		if trees.end == at {
			trees.next()
		}
	}
	return out
}

// goValues runs through a table of values by address: pairs of a difference of the
// value, zigzag, and one of the address; a zero difference behind the first ends it.
type goValues struct {
	p          []byte
	end, quant uint32
	value      int32
	begun      bool
}

// values are those of the table at an offset; 0 is no table.
func (t *goLines) values(fn *goFunc, off uint32) goValues {
	v := goValues{end: fn.start, quant: uint32(t.quant), value: -1}
	if at := t.pcs + uint64(off); off != 0 && at < uint64(len(t.b)) {
		v.p = t.b[at:]
	}
	return v
}

// next goes to the next run, which ends at v.end.
func (v *goValues) next() bool {
	d, n := binary.Uvarint(v.p)
	if n <= 0 || d == 0 && v.begun {
		return false
	}
	by, m := binary.Uvarint(v.p[n:])
	if m <= 0 || by == 0 || by > math.MaxUint32/uint64(v.quant) || uint64(v.end)+by*uint64(v.quant) > math.MaxUint32 {
		return false
	}
	v.p, v.begun = v.p[n+m:], true
	v.value += int32(d>>1) ^ -int32(d&1)
	v.end += uint32(by) * v.quant
	return true
}

// string is the text that ends with a zero at an offset behind another.
func (t *goLines) string(base uint64, off uint32) string {
	at := base + uint64(off)
	if off == goNoFile || at >= uint64(len(t.b)) {
		return ""
	}
	b := t.b[at:min(at+1<<12, uint64(len(t.b)))]
	if end := bytes.IndexByte(b, 0); end >= 0 {
		return string(b[:end])
	}
	return ""
}

// file is a source file's name, cleaned as debug information's are.
func (t *goLines) file(off uint32) string {
	if name := t.string(t.files, off); name != "" {
		return path.Clean(name)
	}
	return ""
}

// rowAt is the one that holds an address.
func rowAt(rows []goRow, at uint32) (goRow, bool) {
	for _, r := range rows {
		if r.at <= at && at < r.end {
			return r, true
		}
	}
	return goRow{}, false
}

// source is File and line of an address.
func (t *goLines) source(v Vaddr) (file string, line int, ok bool) {
	fn, ok := t.functionAt(v)
	if !ok {
		return "", 0, false
	}
	r, ok := rowAt(t.rows(&fn, nil), uint32(v-t.text))
	return t.file(r.file), r.line, ok && r.file != goNoFile
}

// frames are the calls that an address is in. Where the inlined ones can't be
// told by name the innermost has the place and no name.
func (t *goLines) frames(v Vaddr) []Frame {
	fn, ok := t.functionAt(v)
	if !ok {
		return nil
	}
	rows, at := t.rows(&fn, nil), uint32(v-t.text)
	name := t.string(t.names, t.u32(&fn, 4))
	var out []Frame
	for range maxGoInlined {
		r, ok := rowAt(rows, at)
		if !ok {
			break
		}
		f := Frame{Func: name, File: t.file(r.file), Line: r.line}
		if r.tree < 0 {
			return append(out, f)
		}
		call, ok := t.call(&fn, r.tree)
		if !ok {
			f.Func, f.Inlined = unknownFunc, true
			return append(out, f, Frame{Func: name})
		}
		f.Func, f.Inlined = t.string(t.names, call.name), true
		out, at = append(out, f), fn.start+call.parent
	}
	if out == nil {
		return nil
	}
	return append(out, Frame{Func: name})
}

const (
	maxGoInlined = 64 // bounds the inlined calls around an address
	unknownFunc  = "(unknown)"
)
