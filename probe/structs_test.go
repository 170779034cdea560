package probe

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// TestStructTexts: the strings that a structure points to are printed in it, by
// jumps and by breakpoints.
func TestStructTexts(t *testing.T) {
	const (
		item = `{name="a name",none=0x0,bad=(fault),text="more than sixteen bytes of text",view="viewed",argv={"first","",0x0},` +
			`in={{tag="one",n=1},{tag="two",n=2}},fixed="fixed",bytes="bytes",n=3}`
		small = `{name="",none=0x0,bad=(fault),text="short",view="viewed",argv={"first","",0x0},in={{tag="one",n=1},{tag="two",n=2}},fixed="fixed",bytes="bytes",n=3}`
	)
	for _, c := range []struct {
		name, file string
		flags      []string
		defs       []string
		want       []string // of each event; * is anything
	}{
		{"C++", "vars_structs.cc", []string{"-O2", "-g", "-std=c++17"},
			[]string{"p:a take p:struct", "p:b take ref", "r:c take r=$retval:struct n=p->n", "p:d take args=p->argv in=p->in[1]", "p:e take m:struct"},
			[]string{"a p=" + item, "b ref=" + small, "c r=" + item + " n=3", `d args={"first","",(fault)} in={tag="two",n=2}`,
				"e m={s={" + strings.Repeat(`"x",`, 16) + "0x*"}},
		{"Go", "vars_structs.go", nil,
			[]string{"p:a main.take r:struct", "p:b main.take names=r.Names in=r.In"},
			[]string{`a r={Method="GET",N=5,Empty="",In={Host="localhost",Path="/index"},Names={"first","second"}}`,
				`b names={"first","second"} in={Host="localhost",Path="/index"}`}},
		{"Rust", "vars_structs.rs", []string{"-g", "-Copt-level=1"},
			[]string{"p:a take p:struct"},
			[]string{`a p={name="a name",owned="owned text",inner={tag="tag",n=7}}`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			prog := fixture.Build(t, c.file, c.flags...)
			var seen []string
			for _, o := range []Options{{}, {NoOptimize: true}} {
				sub := startSubject(t, prog, "3")
				l := attach(t, sub.pid(), o, c.defs...)
				for i := range c.defs {
					name := string(rune('a' + i))
					if n, why := optimizedOf(l, name); (n == 1) == o.NoOptimize {
						t.Errorf("%s: %d places by a jump: %s", c.defs[i], n, why)
					}
				}
				sub.work()
				l.finish(sub.pid())
				sub.end()
				got := l.sink.all()
				slices.Sort(got)
				for i := range got {
					got[i], _, _ = strings.Cut(got[i], " (") // the caller
				}
				if len(got) != 3*len(c.want) {
					t.Fatalf("%d lines: %s", len(got), strings.Join(got, "\n"))
				}
				for i, line := range got {
					want, any := strings.CutSuffix(c.want[i/3], "*")
					if !strings.HasPrefix(line, want) || !any && line != want {
						t.Errorf("optimize %v:\n%s\nwant\n%s", !o.NoOptimize, line, c.want[i/3])
					}
				}
				if seen == nil {
					seen = got
				} else if addresses(seen) != addresses(got) {
					t.Errorf("by jumps\n%s\nby breakpoints\n%s", strings.Join(seen, "\n"), strings.Join(got, "\n"))
				}
			}
		})
	}
}

// addresses joins lines, with addresses that are another run's left out.
func addresses(lines []string) string {
	var b strings.Builder
	for _, l := range lines {
		for _, f := range strings.FieldsFunc(l, func(r rune) bool { return strings.ContainsRune("={},", r) }) {
			if strings.HasPrefix(f, "0x") && len(f) > 8 {
				f = "ADDR"
			}
			fmt.Fprint(&b, f, " ")
		}
	}
	return b.String()
}
