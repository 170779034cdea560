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
			`e name="ann" o={Some={__0={val=9,next={Some={__0={...}}},tag={None}}}} k=Alpha t.__0=1 t.__1=-2 c='é' v[1]=2`,
			`e name="bartholomew" o={None} k=Beta t.__0=1 t.__1=-2 c='é' v[1]=2`}},
		{slow, "p:e rust_values::take o.Some.__0->val *o.Some.__0", []string{
			`e o.Some.__0->val=9 *o.Some.__0={val=9,next={Some={__0={val=5,next={None},tag={Some={__0=7}}}}},tag={None}}`, `e o.Some.__0->val=(fault) *o.Some.__0=(fault)`}},
		{slow, "r:e rust_values::take $retval.discriminant", []string{"e $retval.discriminant=1", "e $retval.discriminant=0"}},
		{slow, "r:e rust_values::take $retval.Some.__0 k if k == 3", []string{"e $retval.Some.__0=254 k=Alpha"}},
		{slow, "r:e rust_values::wide $retval", []string{"e arg1={a=6,b=4,c=11}", "e arg1={a=6,b=4,c=11}"}},
		{slow, "r:e rust_values::pair $retval.discriminant $retval.Ok.__0 n ok", []string{"e $retval.discriminant=0 $retval.Ok.__0=40 n=40 ok=true", "e $retval.discriminant=1 $retval.Ok.__0=(fault) n=41 ok=false"}},
		{slow, "r:e rust_values::tuple $retval.__0 $retval.__1", []string{"e $retval.__0=8 $retval.__1=4", "e $retval.__0=8 $retval.__1=4"}},
		{slow, "p:e rust_values::shape list[0] list[1] list[2] list[3]", slices.Repeat([]string{
			`e list[0]={Circle={__0=1.5}} list[1]={Rect={w=2,h=3}} list[2]={Named={__0="n"}} list[3]={Empty}`}, 2)},
		{fast, "p:e rust_values::take v[1] k c", []string{"e v[1]=2 k=Alpha c='é'", "e v[1]=2 k=Beta c='é'"}},
		{fast, "p:e rust_values::wide w s x d", slices.Repeat([]string{`e w={a=1,b=2,c=3} s={Named={__0="shape"}} x=2.5 d=6`}, 2)},
		{fast, "p:e rust_values::take o", []string{`e o={Some={__0={val=9,next={Some={__0={...}}},tag={None}}}}`, "e o={None}"}},
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
			if err == nil || !strings.Contains(err.Error(), "no known call uses its result") {
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
