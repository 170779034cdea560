package cli

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/probe"
	"kprobe/symbols"
)

// objects runs a command with --json and decodes its lines.
func objects[T any](t *testing.T, args ...string) (list []T) {
	t.Helper()
	r := kprobe(t, &fake{}, "", append(args, "--json")...)
	if r.status != 0 {
		t.Fatalf("%q: %+v", args, r)
	}
	for l := range strings.Lines(r.out) {
		var o T
		if err := json.Unmarshal([]byte(l), &o); err != nil {
			t.Fatalf("%s: %v", l, err)
		}
		list = append(list, o)
	}
	return list
}

type shownLine struct {
	Place, Text, Addr string
	Line              int
	Probe             bool
}

type shownVar struct{ Name, Type, Where, Why, Kind string }

// TestWhatIsShownIsAccepted feeds every place and every name that is printed
// back into a definition.
func TestWhatIsShownIsAccepted(t *testing.T) {
	for _, c := range []struct {
		src, flags string
		funcs      []string
	}{
		{"dwarf_vars.c", "-g -O0", []string{"scalars", "pointers", "inliner", "by_value", "array"}},
		{"dwarf_vars.c", "-g -O2", []string{"scalars", "pointers", "inliner", "by_value", "array"}},
		{"dwarf_vars.cc", "-g -O1", []string{"shapes::Box::scale", "shapes::Box::area", "swap_in", "shapes::largest<int>"}},
		{"dwarf_vars.rs", "-g -O", []string{"dwarf_vars::scalars", "dwarf_vars::text", "dwarf_vars::shapes"}},
		{"dwarf_vars.go", "", []string{"main.scalars", "main.text", "main.whole"}},
	} {
		t.Run(c.src+c.flags, func(t *testing.T) {
			prog := fixture.Build(t, c.src, strings.Fields(c.flags)...)
			space, err := symbols.OpenFileSpace(prog)
			if err != nil {
				t.Fatal(err)
			}
			asked, had := 0, 0
			for _, fn := range c.funcs {
				places := []string{fn, fn + "%return"}
				for _, l := range objects[shownLine](t, "show", "--lines", "-x", prog, fn) {
					if l.Probe {
						places = append(places, l.Place)
					}
				}
				if len(places) < 3 {
					t.Errorf("%s: only %q", fn, places)
				}
				for _, p := range places {
					shown := objects[shownVar](t, "show", "--vars", "-x", prog, p)
					for _, v := range shown {
						asked++
						// A line may have several places. Those that don't have the variable are left out.
						somewhere := slices.ContainsFunc(shown, func(o shownVar) bool { return o.Name == v.Name && o.Why == "" })
						text := `p:x "` + p + `" a=` + v.Name
						d, err := fetch.Parse(text)
						if err != nil {
							t.Errorf("%s: %v", text, err)
							continue
						}
						_, err = probe.Check(space, d)
						if (err == nil) != somewhere || (v.Where == "") != (v.Why != "") || v.Type == "" {
							t.Errorf("%s: %+v, asked for: %v", text, v, err)
						}
						if err == nil {
							had++
						}
					}
				}
			}
			if asked < 30 || had < asked/3 {
				t.Errorf("%d names, %d could be had", asked, had)
			}
		})
	}
}

func TestShowLines(t *testing.T) {
	src := filepath.Join(t.TempDir(), "t.c")
	const text = "int\nwork(int n)\n{\n\n\tint m = n * 3;\n\t/* nothing */\n\treturn m + 1;\n}\n\nint main(int c, char **v)\n{\n\t(void)v;\n\treturn work(c) == 4 ? 0 : 1;\n}\n"
	if err := os.WriteFile(src, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	prog := filepath.Join(filepath.Dir(src), "prog")
	if out, err := exec.Command(fixture.NeedCC(t), "-g", "-O0", "-o", prog, src).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := "<work@" + src + ":0>\n         work(int n)\n      1  {\n\n      3  \tint m = n * 3;\n         \t/* nothing */\n      5  \treturn m + 1;\n      6  }\n"
	if r := kprobe(t, &fake{}, "", "show", "--lines", "-x", prog, "work"); r.out != want || r.status != 0 || r.err != "" {
		t.Errorf("got %+v\nwant %s", r, want)
	}
	want = "<work@" + src + ":3>\n      3  \tint m = n * 3;\n         \t/* nothing */\n"
	for _, place := range []string{"work:3-4", "work:3+1"} {
		if r := kprobe(t, &fake{}, "", "show", "--lines", "-x", prog, place); r.out != want {
			t.Errorf("%s: got %+v\nwant %s", place, r, want)
		}
	}
	want = "<t.c@" + src + ":4>\n\n      5  \tint m = n * 3;\n"
	if r := kprobe(t, &fake{}, "", "show", "--lines", "-x", prog, "t.c:4-5"); r.out != want {
		t.Errorf("got %+v\nwant %s", r, want)
	}
	lines := objects[shownLine](t, "show", "--lines", "-x", prog, "t.c")
	if len(lines) != 14 || lines[4].Place != "t.c:5" || !lines[4].Probe || lines[3].Probe || lines[0].Text != "int" {
		t.Errorf("of a file: %+v", lines)
	}
	for args, want := range map[string]string{
		"--lines work:4-2": "FROM-TO", "--lines work --vars": "cannot be used together", "--lines wrok": "work", "--lines u.c:1-3": "t.c", "--vars work+1": "work",
	} {
		r := kprobe(t, &fake{}, "", append([]string{"show", "-x", prog}, strings.Fields(args)...)...)
		if args == "--vars work+1" {
			if r.status != 0 { // where variables are is known inside an instruction too
				t.Errorf("%s: %+v", args, r)
			}
		} else if r.status == 0 || r.out != "" || !strings.Contains(r.err, want) {
			t.Errorf("%s: %+v", args, r)
		}
	}

	// Another source than that which was compiled, or none: lines with code alone.
	for _, damage := range []func() error{func() error { return os.WriteFile(src, []byte("int\n"), 0o644) }, func() error { return os.Remove(src) }} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		r := kprobe(t, &fake{}, "", "show", "--lines", "-x", prog, "work")
		if got := strings.Count(r.out, "\n"); r.status != 0 || got != 5 || !strings.Contains(r.out, "      3  0x") || !strings.Contains(r.err, "warning: the source of work") {
			t.Errorf("%+v", r)
		}
		for _, l := range objects[shownLine](t, "show", "--lines", "-x", prog, "work") {
			if !l.Probe || l.Text != "" || !strings.HasPrefix(l.Addr, "0x") {
				t.Errorf("%+v", l)
			}
		}
	}
}

func TestFunctionsWithFiles(t *testing.T) {
	for _, src := range []string{"dwarf_vars.c", "dwarf_vars.cc"} {
		prog := fixture.Build(t, src, "-g", "-O2")
		space, err := symbols.OpenFileSpace(prog)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		r := kprobe(t, &fake{}, "", "functions", "--files", "-x", prog)
		for l := range strings.Lines(r.out) {
			name, source, ok := strings.Cut(strings.TrimSuffix(l, "\n"), "\t")
			if !ok {
				continue
			}
			found++
			if !strings.Contains(source, "/testdata/"+src+":") {
				t.Errorf("%s is in %s", name, source)
			}
			for _, place := range []string{name, source} {
				d, err := fetch.Parse("p:x " + place)
				if err != nil {
					t.Errorf("%s: %v", place, err)
				} else if _, err := space.Resolve(d.Place); err != nil {
					t.Errorf("%s: %v", place, err)
				}
			}
		}
		if found < 6 || r.status != 0 {
			t.Errorf("%s: %+v", src, r)
		}
	}
}
