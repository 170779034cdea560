package vars

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// shown is a value as gdb's pretty printers have it (testdata/dwarf_dump.py): one of
// these, or null for nothing.
type shown struct {
	Skip    *string
	Bool    *bool
	Int     *string
	Float   *string
	Text    *string
	Char    *int
	Pointer *string
	List    *[]*shown
	Pairs   *[][2]*shown
	Fields  map[string]*shown
	Variant []json.RawMessage
}

// agrees says where a value that kprobe prints as JSON is another than gdb's; "" is
// nowhere. What one of them doesn't print is counted in skipped.
func agrees(have any, w *shown, skipped *int) string {
	differ := func() string {
		b, _ := json.Marshal(have)
		g, _ := json.Marshal(w)
		return fmt.Sprintf("%.300s, gdb has %.300s", b, g)
	}
	switch {
	case w == nil:
		if have != nil && have != "0x0" && have != json.Number("0") {
			return differ()
		}
	case w.Skip != nil:
		*skipped++
	case w.Bool != nil:
		if have != *w.Bool {
			return differ()
		}
	case w.Int != nil:
		if fmt.Sprint(have) != *w.Int {
			return differ()
		}
	case w.Float != nil:
		f, err := strconv.ParseFloat(fmt.Sprint(have), 64)
		g, err2 := strconv.ParseFloat(*w.Float, 64)
		if err != nil || err2 != nil || f != g && float32(f) != float32(g) && !(math.IsNaN(f) && math.IsNaN(g)) {
			return differ()
		}
	case w.Text != nil:
		if s, ok := have.(string); !ok || s != *w.Text {
			return differ()
		}
	case w.Char != nil:
		s, ok := have.(string)
		if r := []rune(s); !ok || len(r) != 1 || int(r[0]) != *w.Char && r[0] < 0x80 {
			return differ()
		}
	case w.Pointer != nil:
		s := fmt.Sprint(have)
		n, err := strconv.ParseUint(s, 0, 64)
		if have == nil || err != nil { // a text, a symbol, or what it leads to
			*skipped++
		} else if strconv.FormatUint(n, 10) != *w.Pointer {
			return differ()
		}
	case w.List != nil:
		list, ok := have.([]any)
		if !ok || len(list) != min(len(*w.List), len(list)) || len(list) < min(len(*w.List), 60) {
			return differ()
		}
		for i := range list {
			if s := agrees(list[i], (*w.List)[i], skipped); s != "" {
				return fmt.Sprintf("[%d]: %s", i, s)
			}
		}
	case w.Pairs != nil:
		return agreePairs(have, *w.Pairs, skipped)
	case w.Variant != nil:
		m, ok := have.(map[string]any)
		var v *shown
		if err := json.Unmarshal(w.Variant[1], &v); err != nil || !ok || fmt.Sprint(m["index"]) != string(w.Variant[0]) {
			return differ()
		}
		return agrees(m["value"], v, skipped)
	case w.Fields != nil:
		m, ok := have.(map[string]any)
		if !ok {
			if len(w.Fields) == 1 { // what wraps one value prints as it
				for _, f := range w.Fields {
					return agrees(have, f, skipped)
				}
			}
			*skipped++
			return ""
		}
		for name, f := range w.Fields {
			if h, ok := m[name]; !ok {
				*skipped++
			} else if s := agrees(h, f, skipped); s != "" {
				return name + ": " + s
			}
		}
	}
	return ""
}

func agreePairs(have any, want [][2]*shown, skipped *int) string {
	switch have := have.(type) {
	case []any:
		if len(have) < min(len(want), 60) || len(have) > len(want) {
			return fmt.Sprintf("%d pairs, gdb has %d", len(have), len(want))
		}
		for i := range have {
			m, ok := have[i].(map[string]any)
			if !ok {
				return fmt.Sprintf("no pair: %v", have[i])
			}
			if s := agrees(m["key"], want[i][0], skipped); s != "" {
				return "key: " + s
			}
			if s := agrees(m["value"], want[i][1], skipped); s != "" {
				return "value: " + s
			}
		}
	case map[string]any:
		if len(have) < min(len(want), 60) || len(have) > len(want) {
			return fmt.Sprintf("%d keys, gdb has %d", len(have), len(want))
		}
		for _, p := range want {
			if p[0] == nil || p[0].Text == nil {
				return "a key that is no text"
			}
			v, ok := have[*p[0].Text]
			if !ok && len(have) == len(want) {
				return fmt.Sprintf("no key %q", *p[0].Text)
			}
			if s := agrees(v, p[1], skipped); ok && s != "" {
				return *p[0].Text + ": " + s
			}
		}
	default:
		return fmt.Sprintf("no map: %v", have)
	}
	return ""
}

// printedJSON is a variable at a stop, as kprobe prints it.
func printedJSON(s *stop, v fetch.Variable) (any, error) {
	d, err := fetch.Parse("p f x=v")
	if err != nil {
		return nil, err
	}
	d.Limit = fetch.Limit{Elements: 64, Depth: fetch.MaxDepth}
	prog, err := d.Compile(oneVariable{v})
	if err != nil {
		return nil, err
	}
	rec, ok := prog.Eval(s.context(), nil)
	if !ok {
		return nil, errors.New("not recorded")
	}
	vals, err := prog.Decode(rec, nil)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(strings.NewReader(string(fetch.AppendJSON(nil, prog.Fields()[0].Type, vals[0], nil))))
	dec.UseNumber()
	var out any
	return out, errors.Join(dec.Decode(&out), func() error {
		if vals[0].Fault {
			return errors.New("(fault)")
		}
		return nil
	}())
}

// TestAgainstPrettyPrinters compares every variable at the functions of programs with
// what gdb's pretty printers say of it, from the same memory.
func TestAgainstPrettyPrinters(t *testing.T) {
	sum, alone := 0, 0
	for _, p := range []struct {
		source, funcs string // funcs matches symbols
		flags         []string
		rounds, least int
		raw           bool
		cc            string
	}{
		{"containers.cc", "^see_([^v]|v[^v])", []string{"-std=c++20", "-g", "-O1"}, 3, 200, false, ""},
		{"containers.cc", "^see_([^v]|v[^v])", []string{"-std=c++20", "-g", "-O0", "-gdwarf-4", "-D_GLIBCXX_USE_CXX11_ABI=0"}, 1, 70, true, ""},
		{"values_cxx.cc", "^_Z[0-9]", []string{"-g", "-O0"}, 3, 40, true, ""},
		{"values_cxx.cc", "^_Z[0-9]", []string{"-g", "-O2", "-fdebug-types-section"}, 3, 30, false, ""},
		{"values_rare.cc", "^_Z[0-9]", []string{"-g", "-O0"}, 3, 30, true, ""},
		{"values_types.c", "^[a-z]", []string{"-g", "-O0"}, 3, 100, true, ""},
		{"values_types.c", "^[a-z]", []string{"-g", "-O3"}, 3, 50, false, ""},
		{"values_types.c", "^[a-z]", []string{"-g", "-O2", "-gdwarf-4"}, 3, 50, false, "clang"},
	} {
		t.Run(p.source+p.cc+strings.Join(p.flags, ""), func(t *testing.T) {
			if p.cc != "" {
				t.Setenv("CC", fixture.NeedTool(t, p.cc))
			}
			agree, gone := againstPrinters(t, fixture.Build(t, p.source, p.flags...), p.raw, p.rounds, regexp.MustCompile(p.funcs))
			t.Logf("%d values agree, %d can't be had here", agree, gone)
			if agree < p.least {
				t.Errorf("%d values", agree)
			}
			sum, alone = sum+agree, alone+gone
		})
	}
	t.Logf("in all: %d values agree, %d can't be had here", sum, alone)
}

// placesOf are linesOf, and of unoptimized code where prologues end.
func placesOf(t *testing.T, space *symbols.Space, unoptimized bool, names ...string) []symbols.Vaddr {
	out := linesOf(t, space, names...)
	if !unoptimized {
		return out
	}
	for _, n := range names {
		sites, err := space.Resolve(symbols.Place{Symbol: n})
		if err != nil {
			t.Fatal(err)
		}
		_ = At(space, sites[0]).read(func(f *frame) error {
			if end := symbols.Vaddr(f.prologueEnd(f.pc)); !slices.Contains(out, end) {
				out = append(out, end)
			}
			return nil
		})
	}
	return out
}

// gdbCantTell reports a variable of which gdb may have half, as no one place has all of it, or
// which it looks for where the prologue has not put it yet.
func gdbCantTell(scope *Scope, name string) (wrong bool) {
	_ = scope.read(func(f *frame) error {
		if e, ok := f.name(name); ok {
			p, err := f.located(&e)
			wrong = err != nil || p.kind == inPieces || f.atEntry() && f.unstored(&e)
		}
		return nil
	})
	return wrong
}

// ownFunction finds the functions in what nm lists.
var ownFunction = regexp.MustCompile(`(?m)^[0-9a-f]+ [Tt] (\w+)$`)

func againstPrinters(t *testing.T, prog string, unoptimized bool, rounds int, funcs *regexp.Regexp) (agree, gone int) {
	t.Helper()
	space, err := symbols.OpenFileSpace(prog)
	if err != nil {
		t.Fatal(err)
	}
	list, err := exec.Command(fixture.NeedTool(t, "nm"), prog).Output()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range ownFunction.FindAllStringSubmatch(string(list), -1) {
		if n := m[1]; funcs.MatchString(n) && n != "main" && n != "frame_dummy" && n != "register_tm_clones" && n != "deregister_tm_clones" {
			names = append(names, n)
		}
	}
	t.Setenv("DUMP_SHOWN", "1")
	complain := 12
	for _, s := range runGDB(t, prog, placesOf(t, space, unoptimized, names...), rounds, nil) {
		if unoptimized && isEntry(space, s) {
			continue // what gdb says before the prologue is not so
		}
		site := siteOf(t, space, s)
		scope := At(space, site)
		for name, w := range s.Vars {
			if w.Error != "" || w.Gone || len(w.Shown) == 0 {
				continue
			}
			var want *shown
			if err := json.Unmarshal(w.Shown, &want); err != nil {
				t.Fatal(err)
			}
			if want != nil && want.Skip != nil {
				continue
			}
			if gdbCantTell(scope, name) {
				continue
			}
			v, err := scope.Variable(name)
			have, perr := any(nil), err
			if err == nil {
				have, perr = printedJSON(s, v)
			}
			if perr != nil {
				gone++
				t.Logf("%s at %v of %s: %v", name, site.Addr, s.Func, perr)
				continue
			}
			skipped := 0
			if why := agrees(have, want, &skipped); why != "" {
				if complain--; complain >= 0 {
					t.Errorf("%s %s at %v of %s: %s", filepath.Base(prog), name, site.Addr, s.Func, why)
				}
				continue
			}
			agree++
		}
		s.mem = nil
	}
	return agree, gone
}
