package probe

import (
	"slices"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// TestCasts reads members through casts, in C's spelling and in the kernel's, and
// numbers that a cast makes wider.
func TestCasts(t *testing.T) {
	prog := fixture.Build(t, "dwarf_vars.c", "-g", "-O2")
	for def, want := range map[string]string{
		"p:e pointers a=(conn)raw->fd b=((struct conn *)raw)->at.y c=(conn,at)raw->at.x d=(conn*)raw->peer":                     `e a=42 b=-22 c=42 d="10.0.0.1"`,
		"p:e pointers a=(unsigned long)c->level b=(long)c->level c=(long)c->fd d=(long)(int)c->bytes e=(unsigned char)c->level": `e a=18446744073709551609 b=-7 c=42 d=0 e=249`,
		"r:e pointers a=(conn)raw->fd b=(long)c->level":                                                                         `e a=42 b=-7`,
		"p:e by_value a=(long)big.level if a < 0":                                                                               `e a=-7`,
	} {
		for _, o := range []Options{{}, {NoOptimize: true}} {
			sink := &collector{}
			traceCommand(t, o, sink, []string{prog}, def)
			var got []string
			for _, l := range sink.all() {
				l, _, _ = strings.Cut(l, " (main+")
				got = append(got, l)
			}
			if !slices.Equal(got, []string{want}) {
				t.Errorf("%s, optimize %v: %q, want %q", def, !o.NoOptimize, got, want)
			}
		}
	}
}
