package symbols

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// told is what addr2line -i -f says of one address: function and place of
// each frame, the innermost first.
type told struct{ fn, place string }

// addr2line asks binutils for the frames of addresses.
func addr2line(t testing.TB, path string, at []Vaddr) [][]told {
	t.Helper()
	cmd := exec.Command(fixture.NeedTool(t, "addr2line"), "-a", "-i", "-f", "-e", path)
	var in bytes.Buffer
	for _, v := range at {
		fmt.Fprintln(&in, v)
	}
	cmd.Stdin = &in
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var all [][]told
	sc := bufio.NewScanner(bytes.NewReader(out))
	for sc.Scan() {
		line := sc.Text()
		if strings.HasPrefix(line, "0x") {
			all = append(all, nil)
			continue
		}
		if !sc.Scan() {
			break
		}
		place, _, _ := strings.Cut(sc.Text(), " (")
		last := len(all) - 1
		all[last] = append(all[last], told{line, place})
	}
	if len(all) != len(at) {
		t.Fatalf("addr2line answers %d of %d addresses", len(all), len(at))
	}
	return all
}

func placeText(file string, line int) string {
	f, n := file, strconv.Itoa(line)
	if f == "" {
		f = "??"
	}
	if line == 0 {
		n = "?"
	}
	return f + ":" + n
}

// samePlace compares places; addr2line leaves directories unjoined where the
// table has ".." in them, and joins a relative one to itself.
func samePlace(a, b string) bool {
	fa, la, _ := strings.Cut(a, ":")
	fb, lb, _ := strings.Cut(b, ":")
	if !filepath.IsAbs(fa) && !filepath.IsAbs(fb) {
		fa, fb = filepath.Base(fa), filepath.Base(fb)
	}
	return la == lb && filepath.Clean(fa) == filepath.Clean(fb)
}

// impossible reports a place past the end of its file: addr2line takes the
// file of a wrong table for functions in sections of their own.
func impossible(place string) bool {
	file, line, _ := strings.Cut(place, ":")
	n, err := strconv.Atoi(line)
	text, err2 := os.ReadFile(file)
	return err == nil && err2 == nil && n > bytes.Count(text, []byte{'\n'})
}

// codeAddresses gives addresses all over the code of a file.
func codeAddresses(f *File, step Vaddr) []Vaddr {
	var out []Vaddr
	for _, fn := range f.Funcs() {
		for v := fn.Start; v < fn.End; v += step {
			out = append(out, v)
		}
	}
	return out
}

// debugPrograms are fixtures with debug information of every producer.
func debugPrograms(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, o := range []string{"-O0", "-O2", "-O3"} {
		out["c"+o] = fixture.Build(t, "dwarf_vars.c", "-g", o)
		out["c++"+o] = fixture.Build(t, "dwarf_vars.cc", "-g", o)
	}
	out["c-dwarf4"] = fixture.Build(t, "dwarf_vars.c", "-gdwarf-4", "-O2")
	out["c-dwarf3"] = fixture.Build(t, "dwarf_vars.c", "-gdwarf-3", "-gstrict-dwarf", "-O2")
	out["c-dwarf2"] = fixture.Build(t, "dwarf_vars.c", "-gdwarf-2", "-gstrict-dwarf", "-O1")
	out["c-zlib"] = fixture.Build(t, "dwarf_vars.c", "-g", "-gz=zlib", "-O2")
	return out
}

// TestSourceAgainstAddr2line compares file, line and inlined calls of every
// byte of the fixtures' code.
func TestSourceAgainstAddr2line(t *testing.T) {
	for name, path := range debugPrograms(t) {
		t.Run(name, func(t *testing.T) {
			s, err := OpenFileSpace(path)
			if err != nil {
				t.Fatal(err)
			}
			at := codeAddresses(s.Modules()[0].File, 1)
			agree, inlined := compareFrames(t, s, path, at, 10)
			t.Logf("%d of %d addresses agree, %d of them in inlined calls", agree, len(at), inlined)
			// Strict DWARF 2 has no places of calls.
			if agree != len(at) || agree < 300 || inlined == 0 && name != "c-dwarf2" {
				t.Errorf("%d of %d addresses agree, %d inlined", agree, len(at), inlined)
			}
		})
	}
}

func compareFrames(t *testing.T, s *Space, path string, at []Vaddr, complain int) (agree, inlined int) {
	t.Helper()
	for i, want := range addr2line(t, path, at) {
		a := Addr(at[i])
		got := s.Frames(a)
		same := len(got) == len(want) || len(got) == 0 && len(want) == 1
		for j := range want {
			have := told{"??", "??:?"}
			if j < len(got) {
				have = told{got[j].Func, placeText(got[j].File, got[j].Line)}
			}
			if len(want) == 1 && strings.HasSuffix(want[j].place, ":?") && strings.HasSuffix(have.place, ":?") {
				continue // a file that addr2line has of the symbol table
			}
			same = same && (samePlace(have.place, want[j].place) || impossible(want[j].place))
		}
		if file, line, ok := s.Source(a); same && ok && line != 0 && !samePlace(placeText(file, line), want[0].place) && !impossible(want[0].place) {
			same = false
		}
		if same {
			agree++
			if len(want) > 1 {
				inlined++
			}
		} else if complain > 0 {
			complain--
			t.Errorf("%v: %+v, addr2line says %+v", a, got, want)
		}
	}
	return agree, inlined
}

// TestSourceOfBigFile compares a sample of a large file, named by
// KPROBE_TEST_DEBUGFILE.
func TestSourceOfBigFile(t *testing.T) {
	path := os.Getenv("KPROBE_TEST_DEBUGFILE")
	if path == "" {
		t.Skip("KPROBE_TEST_DEBUGFILE names no file")
	}
	s, err := OpenFileSpace(path)
	if err != nil {
		t.Fatal(err)
	}
	at := codeAddresses(s.Modules()[0].File, 1)
	if n := len(at) / 20000; n > 1 {
		for i := range len(at) / n {
			at[i] = at[i*n]
		}
		at = at[:len(at)/n]
	}
	agree, inlined := compareFrames(t, s, path, at, 30)
	t.Logf("%d of %d addresses agree, %d of them in inlined calls", agree, len(at), inlined)
}

// markedLine finds the line of a fixture's source that has a mark.
func markedLine(t testing.TB, source, mark string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(fixture.Root(), "testdata", source))
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range strings.Split(string(text), "\n") {
		if strings.Contains(l, mark) {
			return i + 1
		}
	}
	t.Fatalf("%s has no line %q", source, mark)
	return 0
}

func TestLinePlaces(t *testing.T) {
	const src = "dwarf_vars.c"
	body := markedLine(t, src, "line: scalars body")
	head := markedLine(t, src, "int scalars(") // its parameters go on in the next line
	mix := markedLine(t, src, "int c = a * 3")
	for _, o := range []string{"-O0", "-O2"} {
		s, err := OpenFileSpace(fixture.Build(t, src, "-g", o))
		if err != nil {
			t.Fatal(err)
		}
		resolve := func(p Place, want int) []Site {
			sites, err := s.Resolve(p)
			if err != nil || len(sites) != want {
				t.Errorf("%s: %s is %+v (%v), want %d places", o, p, sites, err, want)
				return nil
			}
			return sites
		}
		byFile := resolve(Place{Kind: PlaceLine, File: src, Line: body}, 1)
		byFunc := resolve(Place{Kind: PlaceLine, Symbol: "scalars", Line: body - head}, 1)
		if byFile != nil && byFunc != nil && (byFile[0].Addr != byFunc[0].Addr || byFile[0].Func.Symbol.Name != "scalars") {
			t.Errorf("%s: by file %+v, by function %+v", o, byFile, byFunc)
		}
		for _, site := range resolve(Place{Kind: PlaceLine, File: "testdata/" + src, Line: mix}, 2) {
			if _, line, ok := s.Source(site.Addr); !ok || line != mix && o == "-O0" || site.Func.Symbol.Name != "inliner" {
				t.Errorf("%s: %+v is of line %d, want %d", o, site, line, mix)
			}
		}
		sites := resolve(Place{Kind: PlaceSymbol, Symbol: "mix"}, 2)
		for _, site := range sites {
			if site.NamedAs().Inlined != "mix" || site.Func.Symbol.Name != "inliner" || site.NamedAs().Entry.IsZero() {
				t.Errorf("%s: %+v is no inlined instance of mix in inliner", o, site)
			}
		}
		var le *LineError
		if _, err := s.Resolve(Place{Kind: PlaceLine, File: src, Line: head - 1}); !errors.As(err, &le) || le.After != head+2 || le.Before == 0 || !errors.Is(err, ErrNoLine) {
			t.Errorf("%s: a line without code: %v (%+v), want the next to be %d", o, err, le, head+2)
		}
		var nf *NotFoundError
		if _, err := s.Resolve(Place{Kind: PlaceLine, File: "dwarf_var.c", Line: 10}); !errors.As(err, &nf) || len(nf.Near) != 1 || nf.Near[0] != src {
			t.Errorf("%s: a file that is not there: %v", o, err)
		}
		lines, file, first, err := s.Lines(resolve(placeOf("scalars"), 1)[0])
		if err != nil || first != head || filepath.Base(file) != src || len(lines) < 4 || lines[0].Line != head+2 {
			t.Errorf("%s: lines %+v from %d, %v", o, lines, first, err)
		}
	}
	s, err := OpenFileSpace(fixture.Build(t, src, "-O2"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Resolve(Place{Kind: PlaceLine, File: src, Line: body}); !errors.Is(err, ErrNoDebugInfo) {
		t.Errorf("without debug information: %v", err)
	}
}
