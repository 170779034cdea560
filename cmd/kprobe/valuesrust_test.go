package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// TestRustEnums: of an enum the variant that is there is told, whatever its
// discriminant's size, and texts of the system are texts.
func TestRustEnums(t *testing.T) {
	for _, flags := range [][]string{{"-g"}, {"-g", "-O"}} {
		prog := fixture.Build(t, "rust_enums.rs", flags...)
		out := filepath.Join(t.TempDir(), "hits")
		cmd := exec.Command(program(t), "trace", "-q", "-o", out, "p:number number x=*x", "p:option option x=*x", "p:path path x y z", "--", prog)
		var own, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &own, &errs
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v: %s", err, errs.String())
		}
		text, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		var have []string
		for _, m := range regexp.MustCompile(`(?m): (\w+): \(.*?\) (.*)$`).FindAllSubmatch(text, -1) {
			have = append(have, string(m[1])+" "+string(m[2]))
		}
		if got := strings.Join(have, "\n") + "\n"; got != own.String() || len(have) != 9 {
			t.Errorf("%v: kprobe:\n%s\nthe program:\n%s", flags, got, own.String())
		}
	}
}

// TestRustGiven: what a function was given it may have freed when it returns: a probe
// of the return has no value of it.
func TestRustGiven(t *testing.T) {
	prog := fixture.Build(t, "rust_enums.rs", "-g")
	for _, c := range []struct{ def, want string }{
		{"r:given given b", "may be gone"}, {"r:given given h", "may be gone"}, {"r:given given o", "may be gone"},
		{"r:given given s n k=h.__1 ret=$retval:s32", ""}, {"p:given given b h o s n", ""},
	} {
		out, err := exec.Command(program(t), "trace", "-q", "-o", os.DevNull, c.def, "--", prog).CombinedOutput()
		if (c.want == "") != (err == nil) || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: %v\n%s", c.def, err, out)
		}
	}
}

// TestRustEnumInPieces: $vars takes a structure in registers apart, and never an enum
// in it, of which one variant is there.
func TestRustEnumInPieces(t *testing.T) {
	prog := fixture.Build(t, "rust_enums.rs", "-g")
	out, err := exec.Command(program(t), "trace", "-q", "-o", "/dev/stdout", "p:kept kept $vars", "--", prog).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{" x.value={None}\n", " x.value={Some={__0=5}}\n"} {
		if !bytes.Contains(out, []byte(want)) {
			t.Errorf("no %q in %s", want, out)
		}
	}
}

// TestRustUnused: what optimized code has no use for its callers need not pass, in
// whatever place; it has no value.
func TestRustUnused(t *testing.T) {
	prog := fixture.Build(t, "values_passed.rs", "-g", "-O")
	for _, name := range []string{"a", "g", "h"} {
		out, err := exec.Command(program(t), "trace", "-q", "p unused "+name, "--", prog).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "optimized out") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// TestRustPlainName: by which convention a function of a plain name is called is not told,
// and a result that both return in the same place is.
func TestRustPlainName(t *testing.T) {
	prog := fixture.Build(t, "values_passed.rs", "-g", "-O")
	for def, want := range map[string]string{"r named r=$retval": "doesn't say whether the function", "r both r=$retval": "r=4.5"} {
		out, err := exec.Command(program(t), "trace", "-q", def, "--", prog).CombinedOutput()
		if strings.HasPrefix(want, "r=") != (err == nil) || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v\n%s", def, err, out)
		}
	}
}

// TestRustUnusedResult: of a function that no other file calls LLVM leaves the result out
// where no call uses it; one that a call reads, or whose address is taken, is there. So is
// one in memory, at the address that the function was given.
func TestRustUnusedResult(t *testing.T) {
	for _, flags := range [][]string{{"-g"}, {"-g", "-O"}, {"-g", "-Ccodegen-units=1"}, {"-g", "-O", "-Ccodegen-units=1"}} {
		prog := fixture.Build(t, "rust_results.rs", flags...)
		optimized := slices.Contains(flags, "-O")
		for name, want := range map[string]string{"quiet": "r=101", "fixed": "r=77", "used": "r=5", "taken": "r=7",
			"pair": "r={__0=9,__1=10}", "half": "r={__0=10,__1=11}", "maybe": "r={Some={__0=15}}", "wide": "r=1180591620717411303424", "large": "r={8,8,8}",
			"simple": "r={a=11,b=7,c=11}", "ignored": "r=36", "passed": "r={a=21,b=7,c=21}", "onward": "r={a=42,b=7,c=42}", "text": `r="text50"`} {
			out, err := exec.Command(program(t), "trace", "-q", "r rust_results::"+name+" r=$retval", "--", prog).CombinedOutput()
			switch {
			case optimized && slices.Contains([]string{"quiet", "fixed", "half", "maybe", "ignored"}, name): // the tag of maybe is always the same
				want = "no known call uses its result"
			}
			if strings.HasPrefix(want, "r=") != (err == nil) || !strings.Contains(string(out), want) {
				t.Errorf("%v %s: %v\n%s", flags, name, err, out)
			}
		}
	}
}
