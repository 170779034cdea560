package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// TestValuesAsWide are packed structures of clang, which doesn't tell a member from a bitfield
// that is as wide as its type: the one is passed in memory, the other in registers. The
// parameters tell which results are the first.
func TestValuesAsWide(t *testing.T) {
	const source = `#include <stdio.h>
enum e { A = 1, B = 2, C = 4026531840LL };
struct __attribute__((packed)) plain { char a; int b; };
struct __attribute__((packed)) bits { char a; enum e b : 32; };
__attribute__((noinline)) struct plain p(int x, long y) { printf("=ep {\"x\":%d,\"y\":%ld}\n", x, y); return (struct plain){ x, y }; }
__attribute__((noinline)) struct bits b(int x, long y) { printf("=eb {\"x\":%d,\"y\":%ld}\n", x, y); return (struct bits){ x, y }; }
int main(void) {
	struct plain v = p('k', 20000);
	printf("=rp {\"r\":{\"a\":\"%c\",\"b\":%d}}\n", v.a, v.b);
	struct bits w = b('l', B);
	printf("=rb {\"r\":{\"a\":\"%c\",\"b\":%s}}\n", w.a, w.b == B ? "\"B\"" : "0");
}
`
	for _, o := range []string{"-O0", "-O1", "-O2"} {
		t.Run(o, func(t *testing.T) {
			defs := []string{"p:ep p x=x y=y", "p:eb b x=x y=y", "r:rp p r=$retval", "r:rb b r=$retval"}
			if n := compareProgram(t, "wide.c", source, defs, []string{"clang", "-g", o}); n.equal != 6 || n.refused != 1 {
				t.Errorf("%d values are equal and %d can't be had, not 6 and 1", n.equal, n.refused)
			}
		})
	}
}

// TestShiftedBitfields: a bitfield of which debug information doesn't tell where it begins is
// optimized out, also where the next one hides it, and others have their values.
func TestShiftedBitfields(t *testing.T) {
	const certain = `*r={a=1,x=2,y=B,z=9,w=77,f=5,g=6} *s={a=1,odd=2,x=3,y=B,z=A,w=8}`
	for _, c := range []struct{ cc, flags, want string }{
		{"clang", "-g", `*p={a=1,x=2,y=<optimized out>,z=<optimized out>,w=3} *q={a=1,odd=2,x=3,y=<optimized out>,z=<optimized out>,w=4} ` + certain},
		{"clang", "-gdwarf-4", `*p={a=1,x=2,y=<optimized out>,z=<optimized out>,w=3} *q={a=1,odd=2,x=3,y=<optimized out>,z=<optimized out>,w=4} ` + certain},
		{"gcc", "-g", `*p={a=1,x=2,y=B,z=A,w=3} *q={a=1,odd=2,x=3,y=B,z=A,w=4} ` + certain},
	} {
		t.Setenv("CC", fixture.NeedTool(t, c.cc))
		out := filepath.Join(t.TempDir(), "hits")
		text, err := exec.Command(program(t), "trace", "-q", "-o", out, "p:e f *p *q *r *s", "--", fixture.Build(t, "values_shifted.c", c.flags)).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		hits, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(hits), c.want) {
			t.Errorf("%s %s: %s, not %s", c.cc, c.flags, hits, c.want)
		}
	}
}

// TestValuesAtomic: clang passes and returns structures with _Atomic members in memory, and GCC
// as others. Before DWARF 5, of which debug information doesn't tell of _Atomic, code shows it.
func TestValuesAtomic(t *testing.T) {
	const source = `#include <stdio.h>
struct s { _Atomic _Bool b; char c; };
struct p { char x, y; };
__attribute__((noinline)) struct s f(int k, struct s a, struct p q, int z) { printf("=ef {\"a\":{\"b\":%s,\"c\":\"%c\"},\"k\":%d,\"q\":{\"x\":\"%c\",\"y\":\"%c\"},\"z\":%d}\n", a.b ? "true" : "false", a.c, k, q.x, q.y, z); struct s r = { 1, k }; return r; }
__attribute__((noinline)) struct s none(void) { puts("none"); struct s r = { 0, 'n' }; return r; }
__attribute__((noinline)) struct p plain(void) { puts("plain"); struct p r = { 'v', 'w' }; return r; }
__attribute__((noinline)) struct p both(int z, struct p q) { printf("=eb {\"z\":%d,\"q\":{\"x\":\"%c\",\"y\":\"%c\"}}\n", z, q.x, q.y); struct p r = { q.y, z }; return r; }
__attribute__((noinline)) struct s real(double d) { printf("=ed {\"d\":%g}\n", d); struct s r = { 1, 'd' }; return r; }
int main(int n, char **v) {
	struct s a = { 1, 'z' }; struct p q = { 'p', 'q' }; struct s r = f('a' + n, a, q, 7); printf("=rf {\"r\":{\"b\":%s,\"c\":\"%c\"}}\n", r.b ? "true" : "false", r.c);
	r = none(); printf("=rn {\"r\":{\"b\":%s,\"c\":\"%c\"}}\n", r.b ? "true" : "false", r.c);
	q = plain(); printf("=rp {\"r\":{\"x\":\"%c\",\"y\":\"%c\"}}\n", q.x, q.y);
	q = both('c' + n, q); printf("=rb {\"r\":{\"x\":\"%c\",\"y\":\"%c\"}}\n", q.x, q.y);
	r = real(n + 0.5); printf("=rd {\"r\":{\"b\":%s,\"c\":\"%c\"}}\n", r.b ? "true" : "false", r.c);
}
`
	for _, build := range []string{"clang -g -O0", "clang -g -O2", "gcc -g -O0", "gcc -g -O2",
		"clang -gdwarf-4 -O0", "clang -gdwarf-4 -O1", "clang -gdwarf-4 -O2", "clang -gdwarf-4 -Os", "gcc -gdwarf-4 -O2"} {
		t.Run(build, func(t *testing.T) {
			defs := []string{"p:ef f k=k a=a q=q z=z", "r:rf f r=$retval", "r:rn none r=$retval", "r:rp plain r=$retval", "p:eb both z=z q=q", "r:rb both r=$retval", "p:ed real d=d", "r:rd real r=$retval"}
			if n := compareProgram(t, "atomic.c", source, defs, append(strings.Fields(build), "-w")); n.equal != 20 || n.refused != 0 {
				t.Errorf("%d values are equal and %d can't be had, not 20 and 0", n.equal, n.refused)
			}
		})
	}
}
