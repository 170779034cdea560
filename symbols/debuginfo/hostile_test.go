package debuginfo

import (
	"debug/dwarf"
	"debug/elf"
	"math/rand"
	"slices"
	"testing"
	"time"

	"kprobe/internal/fixture"
)

// sectionsOf reads a program's sections.
func sectionsOf(t testing.TB, path string) Sections {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	get := func(name string) []byte {
		s := f.Section(".debug_" + name)
		if s == nil {
			return nil
		}
		b, err := s.Data()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	return Sections{
		Info: get("info"), Types: get("types"), Abbrev: get("abbrev"), Aranges: get("aranges"), Str: get("str"),
		LineStr: get("line_str"), StrOffsets: get("str_offsets"), Addr: get("addr"), Line: get("line"),
		Ranges: get("ranges"), RngLists: get("rnglists"), Loc: get("loc"), LocLists: get("loclists"),
	}
}

// each are the sections, to be changed.
func (s *Sections) each() []*[]byte {
	return []*[]byte{&s.Info, &s.Types, &s.Abbrev, &s.Aranges, &s.Str, &s.LineStr, &s.StrOffsets, &s.Addr, &s.Line,
		&s.Ranges, &s.RngLists, &s.Loc, &s.LocLists}
}

// ask asks all there is to ask, and counts what is answered.
func ask(d *Data, pcs []uint64) (answers int) {
	for _, u := range d.Units() {
		answers += len(u.Name()) + len(u.Files())
		if t := u.Lines(); t != nil {
			answers += len(t.Rows)
		}
		u.walk(func(e *Entry, depth int) bool {
			answers += len(e.Name())
			for _, v := range e.vals {
				e.RefTo(v.Attr)
			}
			return true
		})
	}
	for _, pc := range pcs {
		for _, e := range d.Scopes(pc) {
			answers += len(e.QualifiedName())
			for c := range e.Children() {
				_, list, _ := c.LocationAt(dwarf.AttrLocation, pc)
				answers += len(list)
			}
			e.EntryPC()
		}
	}
	for _, name := range []string{"mix", "inliner", "shapes::Box::area"} {
		for _, e := range d.FindFunctions(name) {
			answers += len(d.Instances(e)) + len(d.Bodies(e))
		}
	}
	if _, ok := d.FindVariable("counter", nil); ok {
		answers++
	}
	if _, ok := d.FindType("conn", nil); ok {
		answers++
	}
	return answers
}

// codeOf is addresses all over a program's code.
func codeOf(d *Data) []uint64 {
	var out []uint64
	for _, r := range d.unitRanges() {
		for pc := r.Low; pc < r.High; pc += 1 + (r.High-r.Low)/40 {
			out = append(out, pc)
		}
	}
	return out
}

// TestHostileSections changes and cuts sections at random: every question must
// end, without a panic, and soon.
func TestHostileSections(t *testing.T) {
	for _, flags := range [][]string{{"-g", "-O2"}, {"-gdwarf-4", "-O2"}, {"-gdwarf-2", "-O1"}} {
		sec := sectionsOf(t, fixture.Build(t, "dwarf_vars.c", flags...))
		whole := New(sec, Options{})
		pcs := codeOf(whole)
		if n := ask(whole, pcs); n < 1000 {
			t.Fatalf("%v: only %d answers from the file as it is", flags, n)
		}
		rnd := rand.New(rand.NewSource(1))
		for range 150 {
			bad := sec
			for _, b := range bad.each() {
				if len(*b) == 0 || rnd.Intn(2) == 0 {
					continue
				}
				*b = mutate(rnd, *b)
			}
			start := time.Now()
			d := New(bad, Options{})
			ask(d, append(pcs, rnd.Uint64()))
			New(bad, Options{IndexFrom: 1}).FindFunctions("mix")
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("%v: damaged sections keep it busy for %v", flags, took)
			}
		}
	}
}

func mutate(rnd *rand.Rand, b []byte) []byte {
	b = slices.Clone(b)
	switch rnd.Intn(4) {
	case 0:
		return b[:rnd.Intn(len(b))]
	case 1:
		for range 1 + rnd.Intn(64) {
			b[rnd.Intn(len(b))] = byte(rnd.Int())
		}
	case 2:
		b[rnd.Intn(len(b))] = 0xff
	default:
		at := rnd.Intn(len(b))
		copy(b[at:], b[rnd.Intn(len(b)):])
	}
	return b
}

// FuzzInfo reads arbitrary .debug_info and .debug_abbrev, with the other
// sections of a real program.
func FuzzInfo(f *testing.F) {
	sec := sectionsOf(f, fixture.Build(f, "dwarf_vars.c", "-g", "-O2"))
	f.Add(sec.Info[:min(len(sec.Info), 4096)], sec.Abbrev)
	f.Add([]byte{5, 0, 0, 0, 5, 0, 1, 8, 0}, []byte{1, 0x11, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, info, abbrev []byte) {
		s := sec
		s.Info, s.Abbrev = info, abbrev
		ask(New(s, Options{}), []uint64{0x1200, 0x1400})
		ask(New(s, Options{IndexFrom: 1}), nil)
	})
}

// FuzzLines runs arbitrary line programs.
func FuzzLines(f *testing.F) {
	for _, v := range []string{"-gdwarf-5", "-gdwarf-4"} {
		f.Add(sectionsOf(f, fixture.Build(f, "dwarf_vars.c", v, "-O2")).Line)
	}
	sec := sectionsOf(f, fixture.Build(f, "dwarf_vars.c", "-g", "-O2"))
	f.Fuzz(func(t *testing.T, line []byte) {
		s := sec
		s.Line = line
		for _, u := range New(s, Options{}).Units() {
			if lt := u.Lines(); lt != nil {
				for _, r := range lt.Rows {
					lt.File(r)
				}
				lt.At(0x1200)
			}
		}
	})
}

// FuzzPackage reads arbitrary indexes of package files.
func FuzzPackage(f *testing.F) {
	f.Add([]byte{5, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0}, uint64(1))
	f.Fuzz(func(t *testing.T, index []byte, id uint64) {
		if p, ok := NewPackage(Sections{CUIndex: index, TUIndex: index, Info: make([]byte, 64), Types: make([]byte, 64)}); ok {
			p.Unit(id)
			p.typeUnit(id)
		}
	})
}
