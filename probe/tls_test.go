package probe

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// TestThreadLocals reads a program's thread-local variables, and a library's:
// loaded with the program and later, by each way of asking for them, with both C
// libraries, by jumps and by breakpoints.
func TestThreadLocals(t *testing.T) {
	fixture.NeedCC(t)
	src := filepath.Join("..", "testdata")
	for _, compiler := range []string{"cc", "cc -mtls-dialect=gnu2", "clang", "musl-gcc", "musl-gcc -mtls-dialect=gnu2"} {
		cc, flag, descriptors := strings.Cut(compiler, " ")
		fixture.NeedTool(t, cc)
		for _, model := range []string{"global-dynamic", "local-dynamic", "initial-exec"} {
			for _, linked := range []bool{true, false} {
				if cc == "musl-gcc" && model == "initial-exec" && !linked || descriptors && model == "initial-exec" {
					continue // musl loads no such library, and there are no such descriptors
				}
				t.Run(fmt.Sprintf("%s %s linked %v", compiler, model, linked), func(t *testing.T) {
					dir := t.TempDir()
					prog, lib := filepath.Join(dir, "loop"), filepath.Join(dir, "libtls.so")
					flags := []string{"-g", "-O1", "-fPIC", "-shared", fmt.Sprintf("-DMODEL=%q", model), "-o", lib, filepath.Join(src, "tls_part.c")}
					if descriptors {
						flags = append(flags, flag)
					}
					run(t, cc, flags...)
					args := []string{"-g", "-O1", "-rdynamic", "-o", prog, filepath.Join(src, "tls_loop.c"), "-ldl", "-lpthread"}
					name := lib
					if linked {
						args = append(args, "-Wl,--no-as-needed", lib, "-Wl,-rpath,"+dir)
						name = ""
					}
					run(t, cc, args...)
					const threads = 5
					var want []string
					for i := 1; i <= threads; i++ {
						name := string(rune('a' + i))
						want = append(want, fmt.Sprintf("hit n=%d part_first=%d state={name=%q,n=%d} text=%q", i, i, name, i*1000, name),
							fmt.Sprintf("own n=%d own=%d", i, i*7))
					}
					slices.Sort(want)
					for _, o := range []Options{{}, {NoOptimize: true}} {
						sub := startSubject(t, prog, name, fmt.Sprint(threads))
						l := attach(t, sub.pid(), o, "p:hit "+lib+":part_hit n part_first state=part_state text=part_state.name",
							"p:early "+lib+":part_early n part_first", "p:own own_hit n own")
						for _, event := range []string{"hit", "early"} {
							if n, why := optimizedOf(l, event); (n == 1) == o.NoOptimize && (readsBases() || !strings.Contains(why, "fs_base")) {
								t.Errorf("%s: %d places by a jump: %s", event, n, why)
							}
						}
						sub.work()
						l.finish(sub.pid())
						sub.end()
						var got []string
						for _, line := range l.sink.all() {
							if !strings.HasPrefix(line, "early ") {
								got = append(got, line)
							} else if _, first, _ := strings.Cut(line, "part_first="); first != "5" && first != "(fault)" {
								t.Errorf("%s: it is 5, or the thread has none yet", line)
							}
						}
						slices.Sort(got)
						if !slices.Equal(got, want) {
							t.Errorf("optimize %v:\n%s\nwant\n%s", !o.NoOptimize, strings.Join(got, "\n"), strings.Join(want, "\n"))
						}
					}
				})
			}
		}
	}
}

// TestThreadLocalsOfUnloaded: a library that has the number of one that was
// unloaded doesn't have its variables. A thread that has none yet has a fault,
// or with descriptors, whose block is at a fixed distance, the first values.
func TestThreadLocalsOfUnloaded(t *testing.T) {
	fixture.NeedCC(t)
	src := filepath.Join("..", "testdata")
	for _, c := range []struct{ flag, want string }{
		{"-mtls-dialect=gnu", "early n=4711 part_first=(fault)"},
		{"-mtls-dialect=gnu2", "early n=4711 part_first=5"},
	} {
		dir := t.TempDir()
		var libs []string
		for _, name := range []string{"one.so", "two.so"} {
			libs = append(libs, filepath.Join(dir, name))
			run(t, "cc", "-g", "-O1", "-fPIC", "-shared", c.flag, "-o", libs[len(libs)-1], filepath.Join(src, "tls_part.c"))
		}
		prog := filepath.Join(dir, "again")
		run(t, "cc", "-O1", "-o", prog, filepath.Join(src, "tls_again.c"), "-ldl", "-lpthread")
		for _, o := range []Options{{}, {NoOptimize: true}} {
			sub := startSubject(t, prog, libs...)
			l := attach(t, sub.pid(), o, "p:early "+libs[1]+":part_early n part_first")
			sub.work()
			l.finish(sub.pid())
			sub.end()
			if got := l.sink.all(); !slices.Equal(got, []string{c.want}) {
				t.Errorf("%s, optimize %v: %q, want %s", c.flag, !o.NoOptimize, got, c.want)
			}
		}
	}
}
