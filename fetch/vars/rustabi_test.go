package vars

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/symbols"
)

var (
	defined   = regexp.MustCompile(`(?m)^define (.*) @([ra])_(\w+)\((.*)\) `)
	functions = regexp.MustCompile(`\([^()]*\)`) // whose types older compilers write down
	pointers  = regexp.MustCompile(`(%"[^"]*"|%[\w.]+|\{[^*]*\}|\[[^\]]*\]|\b[a-z]\w*)\*+`)
	attribute = regexp.MustCompile(`\b(dso_local|internal|noundef|zeroext|signext|nonnull|noalias|unnamed_addr|inreg|captures\([^)]*\)|dereferenceable\(\d+\)|align \d+|range\([^)]*\)|initializes\(\(.*?\)\)) ?`)
)

// TestRustShapes: how values are passed and returned is as rustc's own LLVM code has
// it, or not told.
func TestRustShapes(t *testing.T) {
	rustc := fixture.NeedTool(t, "rustc")
	lib := fixture.Build(t, "rust_shapes.rs", "-g", "--crate-type=cdylib")
	ir := filepath.Join(t.TempDir(), "shapes.ll")
	cmd := exec.Command(rustc, "--crate-type=lib", "--emit=llvm-ir", "-Copt-level=0", "-o", ir, filepath.Join(fixture.Root(), "testdata", "rust_shapes.rs"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(ir)
	if err != nil {
		t.Fatal(err)
	}
	space, err := symbols.OpenFileSpace(lib)
	if err != nil {
		t.Fatal(err)
	}
	told, count := 0, 0
	for _, m := range defined.FindAllStringSubmatch(string(text), -1) {
		result, name, params := m[1], m[2]+"_"+m[3], m[4]
		want := numbersOf(result)
		if m[2] == "a" {
			params = pointers.ReplaceAllString(functions.ReplaceAllString(params, ""), "ptr")
			params, _, _ = strings.Cut(params, "%f")
			params = params[:strings.LastIndex(params, ",")+1]
			want = numbersOf(params)
		}
		if strings.Contains(m[4], " sret(") {
			want = "by its address"
		}
		sites, err := space.Resolve(symbols.Place{Symbol: name})
		if err != nil {
			t.Fatal(err)
		}
		err = At(space, sites[0]).read(func(f *frame) error {
			count++
			typ, _ := f.resultType()
			s, list := shapeUnknown, []leaf(nil)
			if m[2] == "a" {
				e, ok := f.name("x")
				if !ok {
					return fmt.Errorf("%s has no x", name)
				}
				if typ, err = f.typeOf(&e); err != nil {
					return err
				}
				s, list = f.rustShape(typ, &e)
				if s == shapeAddress && want == "an integer" {
					want = "by its address"
				}
			} else {
				s, list = f.rustShape(typ, nil)
			}
			have := ""
			switch {
			case s == shapeUnknown:
				t.Logf("%s %s: not told, is %s", name, typ, want)
				return nil
			case s == shapeAddress:
				have = "by its address"
			}
			for _, l := range list {
				kind := "an integer"
				if l.float {
					kind = "a float"
				}
				have = strings.TrimPrefix(have+", "+kind, ", ")
			}
			told++
			if have != want {
				t.Errorf("%s %s (%d bytes): %q, rustc has %q: %s(%s)", name, typ, typ.size, have, want, result, m[4])
			}
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Logf("%d of %d are told", told, count)
	if count < 150 || told < count*19/20 {
		t.Errorf("%d of %d are told", told, count)
	}
}

// numbersOf says what a type or parameters of LLVM are.
func numbersOf(s string) string {
	s = attribute.ReplaceAllString(s, "")
	if i := strings.IndexByte(s, '{'); i >= 0 {
		s = s[i:]
	}
	var out []string
	for _, p := range strings.Split(strings.Trim(s, "{} ,"), ",") {
		w := strings.Fields(p)
		for len(w) > 0 && (w[0] == "void" || strings.HasPrefix(w[0], "%") || strings.HasPrefix(w[0], "@")) {
			w = w[1:]
		}
		switch {
		case len(w) == 0:
		case w[0] == "double" || w[0] == "float":
			out = append(out, "a float")
		default:
			out = append(out, "an integer")
		}
	}
	return strings.Join(out, ", ")
}
