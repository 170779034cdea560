package debuginfo

import (
	"cmp"
	"slices"
	"sort"

	"kprobe/symbols/dwread"
)

// Row says that the code from Addr up to the next row belongs to a source line.
type Row struct {
	Addr     uint64
	File     uint32 // in the table's Files
	Line     uint32 // 0: belongs to no line
	Stmt     bool   // a place where a debugger would stop
	End      bool   // no code: the sequence before it ends at Addr
	Prologue bool   // the function's arguments are in place
	Parts    bool   // discriminators tell parts of the line apart
}

// LineTable is the line table of one unit.
type LineTable struct {
	Files []string // with directories, cleaned
	Rows  []Row    // by sequence, and by address in each
	runs  []lineRun
}

// lineRun is a sequence: rows that follow each other in memory.
type lineRun struct {
	Range
	first, last int // of Rows; last is the End row
}

// Lines is the unit's line table, or nil.
func (u *Unit) Lines() *LineTable {
	if u.skel != nil {
		return u.skel.Lines()
	}
	t := u.root()
	if !t.hasLine {
		return nil
	}
	if have, ok := u.data.tables.Load(t.line); ok {
		return have.(*LineTable)
	}
	made := u.readLines(t.line)
	have, _ := u.data.tables.LoadOrStore(t.line, made)
	return have.(*LineTable)
}

func (u *Unit) readLines(off uint64) *LineTable {
	h, ok := u.lineHeaderAt(off)
	if !ok {
		return nil
	}
	m := lineMachine{h: &h, table: &LineTable{Files: h.files}}
	m.run()
	t := m.table
	slices.SortStableFunc(t.runs, func(x, y lineRun) int { return cmp.Compare(x.Low, y.Low) })
	return t
}

// fewLines is how many addresses of a unit are looked up by running its line program, before
// keeping all rows is faster.
const fewLines = 4

// LineAt finds the row that an address belongs to, and the name of its file, which is "" if
// unknown. It answers as At of Lines, but for a few questions it doesn't make the table.
func (u *Unit) LineAt(pc uint64) (row Row, file string, ok bool) {
	if u.skel != nil {
		return u.skel.LineAt(pc)
	}
	t := u.root()
	if !t.hasLine {
		return Row{}, "", false
	}
	if _, have := u.data.tables.Load(t.line); !have && u.linesAsked.Add(1) <= fewLines {
		h, ok := u.lineHeaderAt(t.line)
		if !ok {
			return Row{}, "", false
		}
		m := lineMachine{h: &h, table: &LineTable{Files: h.files}, only: &lineSearch{pc: pc}}
		m.run()
		if !m.only.tangled {
			return m.only.found, m.table.File(m.only.found), m.only.ok
		}
	}
	lines := u.Lines()
	if row, ok = lines.At(pc); ok {
		file = lines.File(row)
	}
	return row, file, ok
}

// lineSearch finds the row of one address while a program runs.
type lineSearch struct {
	pc      uint64
	found   Row // from the sequence that starts last
	ok      bool
	low     uint64 // where the sequence of found starts
	tangled bool   // rows of a sequence aren't in order

	// For the current sequence:
	n         int
	first     uint64
	last, hit Row
	hitOK     bool
}

// row adds the next row of the sequence.
func (s *lineSearch) row(r Row) {
	if s.n++; s.n == 1 {
		s.first, s.hitOK = r.Addr, false
	} else {
		s.tangled = s.tangled || r.Addr < s.last.Addr
		if s.last.Addr <= s.pc && s.pc < r.Addr {
			s.hit, s.hitOK = s.last, true
		}
	}
	s.last = r
}

// end closes the sequence.
func (s *lineSearch) end() {
	if s.n > 1 && s.hitOK && !dead(s.first) && (!s.ok || s.first >= s.low) {
		s.found, s.ok, s.low = s.hit, true, s.first
	}
	s.n = 0
}

// lineMachine runs a line program (DWARF 5, 6.2.5).
type lineMachine struct {
	h     *lineHeader
	only  *lineSearch // instead of keeping rows
	table *LineTable
	row   Row
	file  uint64
	line  int64
	op    uint64 // of VLIW instructions
	discr uint64 // of the next row
	start int    // first row of the sequence
}

func (m *lineMachine) reset() {
	m.row = Row{Stmt: m.h.isStmt}
	m.file, m.line, m.op, m.discr = 1, 1, 0, 0
	m.start = len(m.table.Rows)
}

// Opcodes of line programs (DWARF 5, 7.22).
const (
	lnsCopy = 1 + iota
	lnsAdvancePC
	lnsAdvanceLine
	lnsSetFile
	lnsSetColumn
	lnsNegateStmt
	lnsBasicBlock
	lnsConstAddPC
	lnsFixedAdvancePC
	lnsPrologueEnd
	lnsEpilogueBegin
	lnsSetISA
)

const (
	lneEndSequence      = 1
	lneSetAddress       = 2
	lneSetDiscriminator = 4
)

func (m *lineMachine) run() {
	r := m.h.program
	m.reset()
	for r.Left() > 0 && !r.Bad && len(m.table.Rows) < maxLineRow {
		op := r.U8()
		if op >= m.h.opcodeBase {
			adj := uint64(op - m.h.opcodeBase)
			m.advance(adj / m.h.lineRange)
			m.addLine(m.h.lineBase + int64(adj%m.h.lineRange))
			m.emit()
			continue
		}
		switch op {
		case 0:
			m.extended(&r)
		case lnsCopy:
			m.emit()
		case lnsAdvancePC:
			m.advance(r.Uleb())
		case lnsAdvanceLine:
			m.addLine(r.Sleb())
		case lnsSetFile:
			m.file = r.Uleb()
		case lnsNegateStmt:
			m.row.Stmt = !m.row.Stmt
		case lnsConstAddPC:
			m.advance(uint64(255-m.h.opcodeBase) / m.h.lineRange)
		case lnsFixedAdvancePC:
			m.row.Addr += r.U16()
			m.op = 0
		case lnsPrologueEnd:
			m.row.Prologue = true
		default:
			for range m.h.lengths[op-1] {
				r.Uleb()
			}
		}
	}
}

func (m *lineMachine) advance(n uint64) {
	n += m.op
	m.row.Addr += m.h.minInst * (n / m.h.maxOps)
	m.op = n % m.h.maxOps
}

func (m *lineMachine) addLine(n int64) {
	if m.line += n; n != 0 {
		m.row.Parts = m.discr != 0
	}
}

func (m *lineMachine) extended(r *dwread.Reader) {
	n := r.Uleb()
	b := r.Take(n)
	if len(b) == 0 {
		return
	}
	switch b[0] {
	case lneEndSequence:
		m.row.End = true
		m.emit()
		m.end()
		m.reset()
	case lneSetAddress:
		a := dwread.At(b, 1)
		m.row.Addr, m.op = a.Uint(len(b)-1), 0
	case lneSetDiscriminator:
		a := dwread.At(b, 1)
		m.discr = a.Uleb()
		m.row.Parts = m.row.Parts || m.discr != 0
	}
}

func (m *lineMachine) emit() {
	m.row.File = uint32(min(m.file, uint64(len(m.h.files))))
	m.row.Line = uint32(max(0, min(m.line, 1<<31)))
	if m.only != nil {
		m.only.row(m.row)
	} else {
		m.table.Rows = append(m.table.Rows, m.row)
	}
	m.row.Prologue = false
	m.discr = 0
}

// end closes a sequence. It drops rows of code that the linker has discarded.
func (m *lineMachine) end() {
	if m.only != nil {
		m.only.end()
		return
	}
	rows := m.table.Rows[m.start:]
	if len(rows) < 2 || dead(rows[0].Addr) {
		m.table.Rows = m.table.Rows[:m.start]
		return
	}
	ordered := slices.IsSortedFunc(rows, func(x, y Row) int { return cmp.Compare(x.Addr, y.Addr) })
	if !ordered {
		slices.SortStableFunc(rows, func(x, y Row) int { return cmp.Compare(x.Addr, y.Addr) })
		rows[len(rows)-1].End = true
	}
	last := len(m.table.Rows) - 1
	m.table.runs = append(m.table.runs, lineRun{Range{rows[0].Addr, rows[len(rows)-1].Addr}, m.start, last})
}

// File returns the name of a row's file, or "".
func (t *LineTable) File(r Row) string {
	if int(r.File) < len(t.Files) {
		return t.Files[r.File]
	}
	return ""
}

// At finds the row that an address belongs to.
func (t *LineTable) At(pc uint64) (Row, bool) {
	if t == nil {
		return Row{}, false
	}
	i := sort.Search(len(t.runs), func(i int) bool { return t.runs[i].Low > pc }) - 1
	for steps := 0; i >= 0 && steps < 64; i, steps = i-1, steps+1 {
		run := t.runs[i]
		if pc >= run.High {
			continue
		}
		rows := t.Rows[run.first:run.last]
		j := sort.Search(len(rows), func(j int) bool { return rows[j].Addr > pc }) - 1
		if j >= 0 {
			return rows[j], true
		}
	}
	return Row{}, false
}

// Files returns the files that the unit's line program may mention. It doesn't run the
// program.
func (u *Unit) Files() []string {
	if u.skel != nil {
		return u.skel.Files()
	}
	t := u.root()
	if !t.hasLine {
		return nil
	}
	if have, ok := u.data.tables.Load(t.line); ok {
		if lt := have.(*LineTable); lt != nil {
			return lt.Files
		}
		return nil
	}
	h, _ := u.lineHeaderAt(t.line)
	return h.files
}

// FileOf returns a file by its number in the unit's tables, which DW_AT_decl_file and
// DW_AT_call_file use. It returns "" if the file is unknown.
func (u *Unit) FileOf(n int64) string {
	if u.skel != nil && !u.root().hasLine {
		return u.skel.FileOf(n)
	}
	files := u.data.fileLists.get(u, u.ownFiles)
	if n < 0 || n >= int64(len(files)) {
		return ""
	}
	return files[n]
}

// ownFiles returns the table to which the unit's own entries refer. For split units it is the
// table of the .dwo.
func (u *Unit) ownFiles() []string {
	t := u.root()
	if u.skel != nil && t.hasLine && u.data.sec.Line != nil {
		h, _ := u.lineHeaderAt(t.line)
		return h.files
	}
	return u.Files()
}
