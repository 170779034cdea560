package probe

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// TestClassParameters records C++ classes as parameters and results: those that
// can't be copied by their bytes are passed by their address.
func TestClassParameters(t *testing.T) {
	pointer := regexp.MustCompile(`0x[0-9a-f]{6,}`)
	for _, cc := range []string{"g++ -O0", "g++ -O1", "clang++ -fstandalone-debug -O0"} {
		name, flags, _ := strings.Cut(cc, " ")
		prog := filepath.Join(t.TempDir(), "classes")
		run(t, fixture.NeedTool(t, name), append(strings.Fields(flags), "-g", "-o", prog, filepath.Join("..", "testdata", "vars_classes.cc"))...)
		for _, c := range []struct{ def, want string }{
			{"p:e take p.x p.y o q *sp._M_ptr text v[1] last", `e p.x=1 p.y=2 o={n=3} q={own={n=4}} *sp._M_ptr=5 text="value" v[1]=8 last=6`},
			{"r:e give *$retval._M_ptr n", "e *$retval._M_ptr=5 n=5"},
			{"r:e part $retval.own.n", "e $retval.own.n=11"},
			{"r:e plain $retval.x $retval.y", "e $retval.x=7 $retval.y=12"},
		} {
			sink := &collector{}
			traceCommand(t, Options{}, sink, []string{prog}, c.def)
			var got []string
			for _, l := range sink.all() {
				l, _, _ = strings.Cut(l, " (main+")
				got = append(got, pointer.ReplaceAllString(l, "PTR"))
			}
			if !slices.Equal(got, []string{c.want}) {
				t.Errorf("%s, %s: %q, want %s", cc, c.def, got, c.want)
			}
		}
	}
}
