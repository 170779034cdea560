package symbols

import (
	"debug/dwarf"

	"kprobe/symbols/debuginfo"
	"kprobe/symbols/unwind"
)

// Source returns the source file, with its directory as the compiler had it, and
// the line of the code at an address. ok is false where neither debug information
// nor the table of Go's runtime tells; line 0 is code of no line.
func (s *Space) Source(a Addr) (file string, line int, ok bool) {
	m := s.ModuleAt(a)
	if m == nil {
		return "", 0, false
	}
	err := m.File.ReadDebug(func(d *debuginfo.Data) error {
		file, line, ok = sourceAt(d, uint64(m.Vaddr(a)))
		return nil
	})
	if ok && err == nil {
		return file, line, true
	}
	if t := m.File.goLineTable(); t != nil {
		return t.source(m.Vaddr(a))
	}
	return file, line, false
}

func sourceAt(d *debuginfo.Data, pc uint64) (file string, line int, ok bool) {
	u := d.UnitAt(pc)
	if u == nil {
		return "", 0, false
	}
	row, file, ok := u.LineAt(pc)
	return file, int(row.Line), ok
}

// Frame is one of the calls, real or inlined, that an address is in.
type Frame struct {
	Func string // readable name; "" is unknown
	// File and Line are where the code is, or where the next inner frame was
	// called; "" and 0 are unknown.
	File    string
	Line    int
	Inlined bool // into the next frame
}

// Frames returns the calls that the code at an address is in, the innermost
// first; all but the last are inlined. It is nil where neither debug
// information nor the table of Go's runtime tells.
func (s *Space) Frames(a Addr) []Frame {
	m := s.ModuleAt(a)
	if m == nil {
		return nil
	}
	var out []Frame
	err := m.File.ReadDebug(func(d *debuginfo.Data) error {
		out = frames(d, uint64(m.Vaddr(a)))
		return nil
	})
	if err == nil && out != nil {
		return out
	}
	if t := m.File.goLineTable(); t != nil {
		return t.frames(m.Vaddr(a))
	}
	return nil
}

func frames(d *debuginfo.Data, pc uint64) []Frame {
	file, line, ok := sourceAt(d, pc)
	scopes := d.Scopes(pc)
	if !ok && scopes == nil {
		return nil
	}
	var out []Frame
	for i := len(scopes) - 1; i >= 0; i-- {
		e := &scopes[i]
		inlined := e.Tag() == dwarf.TagInlinedSubroutine
		if !inlined && e.Tag() != dwarf.TagSubprogram {
			continue
		}
		out = append(out, Frame{Func: readableEntry(e), File: file, Line: line, Inlined: inlined})
		if !inlined {
			break
		}
		n, _ := e.Int(dwarf.AttrCallLine)
		file, line = "", int(n)
		if at, ok := e.Int(dwarf.AttrCallFile); ok { // Rust knows some calls' files alone
			file = e.Unit().FileOf(at)
		}
	}
	if out == nil {
		out = []Frame{{File: file, Line: line}}
	}
	return out
}

// readableEntry is the name of a function: its linkage name, demangled, else
// its own.
func readableEntry(e *debuginfo.Entry) string {
	if link := e.LinkageName(); isMangled(link) {
		if name := demangleName(link); name != link {
			return name
		}
	}
	return e.QualifiedName()
}

// Unwind returns the file's call frame information.
func (f *File) Unwind() *unwind.Table {
	return f.cfi.get(func() (t *unwind.Table) {
		t = &unwind.Table{}
		var err error
		defer rescue(f.Path, &err)
		var list []*unwind.Section
		if eh := f.im.ehFrame(); eh != nil {
			list = append(list, eh)
		}
		// The other sections, which may have to be unpacked, are not waited for.
		if in := f.debugImage(); in.err == nil {
			if b := in.im.later("frame"); b != nil {
				list = append(list, &unwind.Section{Bytes: b})
			}
		}
		t = unwind.New(list...)
		return t
	})
}
