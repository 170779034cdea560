package probe

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// TestRustValues records Rust's parameters at functions' entries and their
// results, of each shape that Rust passes in a way of its own; optimized, what
// can't be known is refused and never another value.
func TestRustValues(t *testing.T) {
	fixture.NeedTool(t, "rustc")
	slow, fast := fixture.Build(t, "rust_values.rs", "-g"), fixture.Build(t, "rust_values.rs", "-g", "-O")
	pointer := regexp.MustCompile(`0x[0-9a-f]{6,}`)
	for _, c := range []struct {
		prog, def string
		want      []string // nil: there is no such value
	}{
		{slow, "p:e rust_values::take name o k t.__0 t.__1 c v[1]", []string{
			`e name="ann" o={Some={__0=PTR}} k=Alpha arg4=1 arg5=-2 c='é' arg7=2`,
			`e name="bartholomew" o={None} k=Beta arg4=1 arg5=-2 c='é' arg7=2`}},
		{slow, "p:e rust_values::take o.Some.__0->val *o.Some.__0", []string{
			`e arg1=9 arg2={val=9,next={Some={__0=PTR}},tag={None}}`, `e arg1=(fault) arg2=(fault)`}},
		{slow, "r:e rust_values::take $retval.discriminant", []string{"e arg1=1", "e arg1=0"}},
		{slow, "r:e rust_values::take $retval.Some.__0 k if k == 3", []string{"e arg1=254 k=Alpha"}},
		{slow, "r:e rust_values::wide $retval", []string{"e arg1={a=6,b=4,c=11}", "e arg1={a=6,b=4,c=11}"}},
		{slow, "r:e rust_values::pair $retval.discriminant $retval.Ok.__0 n ok", []string{"e arg1=0 arg2=40 n=40 ok=true", "e arg1=1 arg2=42 n=41 ok=false"}},
		{slow, "r:e rust_values::tuple $retval.__0 $retval.__1", []string{"e arg1=8 arg2=4", "e arg1=8 arg2=4"}},
		{slow, "p:e rust_values::shape list[0] list[1] list[2] list[3]", slices.Repeat([]string{
			`e arg1={Circle={__0=1.5}} arg2={Rect={w=2,h=3}} arg3={Named={__0="n"}} arg4={Empty}`}, 2)},
		{fast, "p:e rust_values::take v[1] k c", []string{"e arg1=2 k=Alpha c='é'", "e arg1=2 k=Beta c='é'"}},
		{fast, "p:e rust_values::wide w s x d", slices.Repeat([]string{`e w={a=1,b=2,c=3} s={Named={__0="shape"}} x=2.5 d=6`}, 2)},
		{fast, "p:e rust_values::take o", nil},
		{fast, "r:e rust_values::take $retval.Some.__0", nil},
		{fast, "r:e rust_values::tuple $retval.__1", nil},
	} {
		if c.want == nil {
			s, err := Start(context.Background(), Command{Path: c.prog, Args: []string{c.prog}}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err = s.Arm(context.Background(), parseDefs(t, c.def)); err == nil {
				_, err = s.Run(context.Background(), &collector{})
			}
			if err == nil || !strings.Contains(err.Error(), "is not known") {
				t.Errorf("%s: %v", c.def, err)
			}
			if err := s.Close(context.Background()); err != nil {
				t.Error(err)
			}
			continue
		}
		for _, o := range []Options{{}, {NoOptimize: true}} {
			sink := &collector{}
			traceCommand(t, o, sink, []string{c.prog}, c.def)
			var got []string
			for _, l := range sink.all() {
				l, _, _ = strings.Cut(l, " (rust_values::main+")
				got = append(got, pointer.ReplaceAllString(l, "PTR"))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%s, optimize %v:\n%s\nwant\n%s", c.def, !o.NoOptimize, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		}
	}
}
