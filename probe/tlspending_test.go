package probe

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// TestThreadLocalsPending has definitions wait for a library and its thread-local
// variables: they are armed before its code runs, each time that it comes.
func TestThreadLocalsPending(t *testing.T) {
	fixture.NeedCC(t)
	src := filepath.Join("..", "testdata")
	for _, how := range []string{"global-dynamic", "initial-exec", "-mtls-dialect=gnu2"} {
		t.Run(how, func(t *testing.T) {
			dir := t.TempDir()
			prog, lib := filepath.Join(dir, "late"), filepath.Join(dir, "libtls.so")
			flag := how
			if !strings.HasPrefix(how, "-") {
				flag = fmt.Sprintf("-DMODEL=%q", how)
			}
			run(t, "cc", "-g", "-O1", "-fPIC", "-shared", flag, "-o", lib, filepath.Join(src, "tls_part.c"))
			run(t, "cc", "-O1", "-o", prog, filepath.Join(src, "tls_late.c"), "-ldl")
			var want []string
			for i := 1; i <= 3; i++ {
				want = append(want, fmt.Sprintf("hit n=%d part_first=%d text=%q", i, i, string(rune('a'+i))))
			}
			for _, o := range []Options{{Pending: always}, {Pending: always, NoOptimize: true}} {
				sub := startSubject(t, prog, lib, "3")
				l := attach(t, sub.pid(), o, "p:hit "+lib+":part_hit n part_first text=part_state.name")
				sub.work()
				l.finish(sub.pid())
				sub.end()
				if got := l.sink.all(); !slices.Equal(got, want) {
					t.Errorf("optimize %v: %q, want %q", !o.NoOptimize, got, want)
				}
			}
		})
	}
}
