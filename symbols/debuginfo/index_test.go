package debuginfo

import (
	"bytes"
	"debug/dwarf"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand"
	"slices"
	"testing"

	"kprobe/internal/fixture"
)

// memoryStore keeps one index.
type memoryStore struct {
	b            []byte
	loads, saves int
}

func (s *memoryStore) Load() []byte  { s.loads++; return s.b }
func (s *memoryStore) Save(b []byte) { s.saves++; s.b = b }

// manyUnits is the sections of a program whose units are there n times.
func manyUnits(t testing.TB, n int, flags ...string) Sections {
	t.Helper()
	sec := sectionsOf(t, fixture.Build(t, "dwarf_vars.cc", flags...))
	one := sec.Info
	for range n - 1 {
		sec.Info = append(slices.Clip(sec.Info), one...)
	}
	return sec
}

// allNames are the names in a file that can be asked for.
func allNames(d *Data) []string {
	seen := map[string]bool{}
	for _, u := range d.Units() {
		u.walk(func(e *Entry, _ int) bool {
			if kindOf(e.tag) != kindOther {
				for _, s := range []string{e.Str(dwarf.AttrName), linkageName(e)} {
					seen[s] = true
				}
				seen[e.QualifiedName()] = true
			}
			return true
		})
	}
	delete(seen, "")
	var out []string
	for n := range seen {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// found is all answers about a name.
func found(d *Data, name string) (out []string) {
	for _, e := range d.FindFunctions(name) {
		places := slices.Concat(d.Instances(e), d.Bodies(e))
		if len(places) == 0 {
			continue // a declaration, which may be left out
		}
		out = append(out, fmt.Sprintf("%#x %s", e.off, e.QualifiedName()))
		for _, x := range places {
			out = append(out, fmt.Sprintf("  %#x", x.off))
		}
	}
	if e, ok := d.FindVariable(name, nil); ok {
		out = append(out, fmt.Sprintf("variable %#x", e.off))
	}
	if e, ok := d.FindType(name, nil); ok {
		out = append(out, fmt.Sprintf("type %#x", e.off))
	}
	return out
}

// TestIndexAnswers: with an index, made or read, the answers about every name
// are those without one.
func TestIndexAnswers(t *testing.T) {
	for _, flags := range [][]string{{"-g", "-O2"}, {"-gdwarf-4", "-O1"}, {"-gdwarf-3", "-gstrict-dwarf", "-O0"}} {
		for _, n := range []int{1, 3} {
			sec := manyUnits(t, n, flags...)
			store := &memoryStore{}
			o := Options{Store: store, IndexFrom: 1}
			plain, made := New(sec, Options{}), New(sec, o)
			names := allNames(New(manyUnits(t, 1, flags...), Options{}))
			if len(names) < 30 {
				t.Fatalf("only %d names", len(names))
			}
			step := len(names)/25 + 1
			some := []string{"area", "shapes::Box::area", "swap_in", "caller", "counter", "no_such_name", "shapes::none", ""}
			for i := 0; i < len(names); i += step {
				some = append(some, names[i])
			}
			names = some
			for _, name := range names {
				want := found(plain, name)
				if got := found(made, name); !slices.Equal(got, want) {
					t.Errorf("%v, %d times: %q is %q with an index, %q without", flags, n, name, got, want)
				}
			}
			if plain.index() != nil || store.saves != 1 || store.loads != 1 {
				t.Errorf("saved %d times, loaded %d times", store.saves, store.loads)
			}
			read := New(sec, o)
			for _, name := range names {
				if got, want := found(read, name), found(plain, name); !slices.Equal(got, want) {
					t.Errorf("%v, %d times: %q is %q by the kept index, %q without", flags, n, name, got, want)
				}
			}
			if store.saves != 1 {
				t.Error("an index that could be read was made again")
			}
		}
	}
}

// TestIndexOfEveryUnit: what is in more cells than are listed is found in all
// units.
func TestIndexOfEveryUnit(t *testing.T) {
	sec := sectionsOf(t, fixture.Build(t, "dwarf_vars.c", "-g", "-O2"))
	n := (maxListed+2)*cellSize/len(sec.Info) + 1
	sec.Info = bytes.Repeat(sec.Info, n)
	d := New(sec, Options{IndexFrom: 1})
	if got := len(d.FindFunctions("scalars")); got != n {
		t.Errorf("found %d times, want %d", got, n)
	}
	if _, every := d.index().names[ofFuncs].lookup("scalars"); !every {
		t.Error("too many cells are listed")
	}
}

// TestIndexReleases: all of the section is let go while it is gone through.
func TestIndexReleases(t *testing.T) {
	sec := manyUnits(t, 4, "-g", "-O2")
	type part struct{ from, to uint64 }
	done := make(chan part, 1000)
	d := New(sec, Options{IndexFrom: 1, Release: func(from, to uint64) { done <- part{from, to} }})
	d.FindFunctions("area")
	close(done)
	var sum uint64
	for p := range done {
		if p.from > p.to || p.to > uint64(len(sec.Info)) {
			t.Errorf("%+v of %d bytes", p, len(sec.Info))
		}
		sum += p.to - p.from
	}
	if sum < 2*uint64(len(sec.Info)) {
		t.Errorf("%d bytes were let go of %d, which were gone through twice", sum, len(sec.Info))
	}
}

// TestDamagedIndex: what isn't the index of these sections is made again.
func TestDamagedIndex(t *testing.T) {
	sec := manyUnits(t, 2, "-g", "-O2")
	store := &memoryStore{}
	want := found(New(sec, Options{Store: store, IndexFrom: 1}), "area")
	good := store.b
	if len(want) == 0 || len(good) == 0 {
		t.Fatal("no answer, or no index")
	}
	rnd := rand.New(rand.NewSource(5))
	bad := [][]byte{nil, {}, []byte("kprobeix"), good[:len(good)-1], good[:indexHead], append(slices.Clone(good), 0, 0, 0, 0)}
	for range 60 {
		b := slices.Clone(good)
		b[rnd.Intn(len(b))] ^= byte(1 + rnd.Intn(255))
		bad = append(bad, b)
	}
	for i, b := range bad {
		s := &memoryStore{b: b}
		d := New(sec, Options{Store: s, IndexFrom: 1})
		if got := found(d, "area"); !slices.Equal(got, want) {
			t.Errorf("%d: %q", i, got)
		}
		if s.saves != 1 || !slices.Equal(s.b, good) {
			t.Errorf("%d: a damaged index was used", i)
		}
	}
	// That of another file.
	other := &memoryStore{b: good}
	New(manyUnits(t, 3, "-g", "-O2"), Options{Store: other, IndexFrom: 1}).FindFunctions("area")
	if other.saves != 1 {
		t.Error("the index of another file was used")
	}
}

// FuzzIndex reads indexes with a right checksum: whatever they say, questions
// end, and name no unit that isn't there.
func FuzzIndex(f *testing.F) {
	sec := sectionsOf(f, fixture.Build(f, "dwarf_vars.c", "-g", "-O2"))
	sec.Info = bytes.Repeat(sec.Info, 2*cellSize/len(sec.Info)+2) // of several cells
	store := &memoryStore{}
	New(sec, Options{Store: store, IndexFrom: 1}).FindFunctions("scalars")
	f.Add(store.b)
	f.Add(store.b[:indexHead])
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= indexHead {
			b = slices.Clone(b)
			binary.LittleEndian.PutUint64(b[16:], New(sec, Options{}).identity())
			binary.LittleEndian.PutUint32(b[12:], crc32.ChecksumIEEE(b[16:]))
		}
		d := New(sec, Options{Store: &memoryStore{b: b}, IndexFrom: 1})
		for _, n := range []string{"scalars", "counter", "", "no_such_name"} {
			found(d, n)
		}
		for pc := range uint64(4) {
			if e, ok := d.FuncAt(0x1000 + pc*0x80); ok {
				e.QualifiedName()
			}
		}
	})
}

// BenchmarkIndex makes the index of a file with many units.
func BenchmarkIndex(b *testing.B) {
	sec := manyUnits(b, 200, "-g", "-O2")
	b.SetBytes(int64(len(sec.Info)))
	for b.Loop() {
		if New(sec, Options{IndexFrom: 1}).index() == nil {
			b.Fatal("no index")
		}
	}
}

// BenchmarkFirstQuestion is where a function of a large file is, without an
// index that was kept.
func BenchmarkFirstQuestion(b *testing.B) {
	sec := manyUnits(b, 200, "-g", "-O2")
	b.SetBytes(int64(len(sec.Info)))
	pc := codeOf(New(sec, Options{}))[3]
	for b.Loop() {
		if New(sec, Options{}).Scopes(pc) == nil {
			b.Fatal("no function")
		}
	}
}

// BenchmarkSecondQuestion asks for a name, with an index that was kept.
func BenchmarkSecondQuestion(b *testing.B) {
	sec := manyUnits(b, 200, "-g", "-O2")
	store := &memoryStore{}
	New(sec, Options{Store: store, IndexFrom: 1}).index()
	if store.saves == 0 {
		b.Fatalf("%d bytes are too few for an index", len(sec.Info))
	}
	for b.Loop() {
		if New(sec, Options{Store: store, IndexFrom: 1}).FindFunctions("no_such_name") != nil {
			b.Fatal("found")
		}
	}
}
