package probe

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"kprobe/internal/fixture"
	"kprobe/probe/engine"
)

// TestHazardW8Kernel: a uprobe of the kernel's stands at a function's entry.
// A probe there is refused, jumps beside it leave it alone, and both count
// each call.
func TestHazardW8Kernel(t *testing.T) {
	k := openTracefs(t)
	prog := ownCopy(t, fixture.Build(t, "hazard_storm.c", "-O2", "-lpthread"))
	sub := &storm{subject: startSubject(t, prog, "3")}
	k.add([]string{fmt.Sprintf("p:%s/w8 %s:%#x", k.group, prog, fileOffsets(t, prog)["f0"])})
	k.set("events/"+k.group+"/enable", "1")
	l, _ := engage(t, sub.pid(), Options{CountOnly: true}, "p:b f1", "p:c f2")
	if err := l.s.Arm(t.Context(), parseDefs(t, "p:a f0")); err == nil || !strings.Contains(err.Error(), "another tracer's breakpoint") {
		t.Errorf("a probe at the kernel's: %v", err)
	}
	if err := l.s.Arm(t.Context(), parseDefs(t, "p:d f3")); err != nil {
		t.Error(err)
	}
	sub.line()
	if !waitUntil(func() bool {
		return k.hits(prog)["w8"] > 0 && l.stat("b").Hits > 0 && l.stat("c").Hits > 0 && l.stat("d").Hits > 0
	}) {
		t.Error("not all were hit")
	}
	sub.stop()
	k.set("events/"+k.group+"/enable", "0")
	l.finish(sub.pid())
	sub.end()
	if n := k.hits(prog)["w8"]; n != sub.calls[0] {
		t.Errorf("the kernel counted %d hits of %d calls", n, sub.calls[0])
	}
	for name, f := range map[string]int{"b": 1, "c": 2, "d": 3} {
		if st := l.stat(name); st.Hits != sub.calls[f] {
			t.Errorf("%s: %d hits of %d calls", name, st.Hits, sub.calls[f])
		}
	}
}

// source builds a program that the test writes.
func source(t *testing.T, text string, flags ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hazard.c")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return fixture.BuildFile(t, path, flags...)
}

// workLoop is the rest of a program that waits, works, and waits again.
const workLoop = `
int main(void) {
    char line[64];
    setup();
    puts("ready"); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 3;
    printf("done %ld\n", rounds()); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 4;
    return 7;
}`

// TestHazardD6: the stack pointer is no multiple of anything at the probe, and
// at a call.
func TestHazardD6(t *testing.T) {
	prog := source(t, `
#include <stdio.h>
static void setup(void) {}
long odd(long n);
__asm__(".text\n.globl odd\n.type odd,@function\nodd:\n"
        "lea -0x203(%rsp), %rsp\nmov %rdi, 0x10(%rsp)\nlea 1(%rdi,%rdi,2), %rax\ncall inner\nadd 0x10(%rsp), %rax\nlea 0x203(%rsp), %rsp\nret\n.size odd,.-odd\n"
        ".globl inner\n.type inner,@function\ninner:\nlea 5(%rax), %rax\nlea 7(%rax), %rax\nret\n.size inner,.-inner\n");
static long rounds(void) { long s = 0; for (long i = 0; i < 1000; i++) s = s * 7 + odd(i); return s; }
`+workLoop, "-O2")
	defs := []string{"p:in odd a=$arg1", "p:mid inner+4 sp=%sp", "p:inner inner s=+0(%sp):x64", "r:ri inner v=$retval", "r:ro odd v=$retval", "p:after odd+23 s=+0x10(%sp):x64"}
	for _, o := range []Options{{}, {NoOptimize: true}} {
		l := unharmed(t, prog, o, defs)
		for _, st := range l.s.Stats() {
			if st.Hits != 1000 || st.Missed != 0 {
				t.Errorf("%s: %d hits, %d missed, want 1000 and 0", st.Event.Name, st.Hits, st.Missed)
			}
		}
	}
}

// TestHazardP12: every address within reach of the program's code is taken.
// Nothing can be put in, and nothing is left behind by the attempt.
func TestHazardP12(t *testing.T) {
	prog := source(t, `
#define _GNU_SOURCE
#include <stdio.h>
#include <stdint.h>
#include <sys/mman.h>
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif
__attribute__((noinline, noclone)) long work(long n) { __asm__ volatile(""); return n * 3 + 1; }
static void setup(void) {
    uintptr_t lo = ((uintptr_t)work & ~0xfffUL) - (3UL << 30), hi = lo + (6UL << 30);
    for (uintptr_t size = 1UL << 30; size >= 4096; size >>= 1)
        for (uintptr_t a = lo & ~(size - 1); a < hi; a += size)
            mmap((void *)a, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
}
static long rounds(void) { long s = 0; for (long i = 0; i < 1000; i++) s += work(i); return s; }
`+workLoop, "-O2")
	want := plain(t, prog)
	sub := startSubject(t, prog)
	s, err := Attach(t.Context(), []int{sub.pid()}, Options{Log: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	if err := s.Arm(t.Context(), parseDefs(t, "p:in work a=$arg1")); err == nil || !strings.Contains(err.Error(), "no free addresses within 2 GiB") {
		t.Errorf("a probe where no copy can be put: %v", err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	checkClean(t, sub.pid())
	if got := sub.work(); got != want {
		t.Errorf("afterwards the program printed %q, otherwise %q", got, want)
	}
	sub.end()
}

// TestHazardP13: programs of other kinds, and one whose file is gone.
func TestHazardP13(t *testing.T) {
	src := filepath.Join(fixture.Root(), "testdata", "probe_calls.c")
	build := func(name, cc string, flags ...string) string {
		out := filepath.Join(t.TempDir(), name)
		args := append([]string{"-O2", "-o", out, src, "-pthread"}, flags...)
		if text, err := exec.Command(fixture.NeedTool(t, cc), args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
		return out
	}
	for name, make := range map[string]func() string{
		"static":     func() string { return build("static", "gcc", "-static") },
		"static-pie": func() string { return build("static-pie", "gcc", "-static-pie", "-fPIE") },
		"no-pie":     func() string { return build("no-pie", "gcc", "-no-pie") },
		"musl":       func() string { return build("musl", "musl-gcc", "-static") },
		"deleted":    func() string { return build("deleted", "gcc") },
		"stripped":   func() string { return build("stripped", "gcc") },
	} {
		t.Run(name, func(t *testing.T) {
			prog := make()
			place := "work"
			if name == "stripped" {
				place = fmt.Sprintf("%s:%#x", prog, fileOffsets(t, prog)["work"])
				if text, err := exec.Command(fixture.NeedTool(t, "strip"), prog).CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, text)
				}
			}
			want := plain(t, prog, "work", "500", "3")
			for _, o := range []Options{{}, {NoOptimize: true}} {
				sub := startSubject(t, prog, "work", "500", "3")
				if name == "deleted" && !o.NoOptimize {
					if err := os.Rename(prog, prog+".old"); err != nil {
						t.Fatal(err)
					}
					defer func() { _ = os.Rename(prog+".old", prog) }()
				}
				l := attach(t, sub.pid(), o, "p:in "+place+" a=$arg1 s=+0($arg2):string", "r100:out "+place+" v=$retval")
				if got := sub.work(); got != want {
					t.Errorf("probed, the program printed %q, otherwise %q", got, want)
				}
				l.finish(sub.pid())
				sub.end()
				for _, ev := range []string{"in", "out"} {
					if st := l.stat(ev); st.Hits != 1500 || st.Missed != 0 {
						t.Errorf("%s: %d hits, %d missed, want 1500 and 0", ev, st.Hits, st.Missed)
					}
				}
				if name == "deleted" {
					break
				}
			}
		})
	}
}

// TestHazardP19: a program is killed while its threads are in detours, in the
// middle of records. The run ends, and its counts add up.
func TestHazardP19(t *testing.T) {
	for i := range full(8, 200) {
		sub := startStorm(t, "4")
		l, c := engage(t, sub.pid(), Options{}, "p:a f0 a=$arg1 s=+0(%sp):x64", "p:b f1 c=$comm", "p:d f3")
		sub.line()
		time.Sleep(time.Duration(1+i) * time.Millisecond)
		if err := syscall.Kill(sub.pid(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		select {
		case <-l.done:
		case <-time.After(time.Minute):
			t.Fatal("the run does not end")
		}
		if l.err != nil || l.sum.Reason != EndTarget {
			t.Errorf("it ended by %v: %v", l.sum.Reason, l.err)
		}
		recorded := uint64(0)
		for _, st := range l.sum.Stats {
			recorded += st.Recorded
			if st.Hits != st.Recorded+st.Filtered+st.Lost {
				t.Errorf("%s: %d hits, but %d recorded, %d filtered, %d lost", st.Event.Name, st.Hits, st.Recorded, st.Filtered, st.Lost)
			}
		}
		if got := c.hits.Load(); got != recorded {
			t.Errorf("%d hits came out, %d are counted as recorded", got, recorded)
		}
		if err := l.s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestHazardP21: kprobe leaves again and again while loads of detours fault.
func TestHazardP21(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "hazard_nets.c", "-O2", "-lpthread"))
	for range full(12, 500) {
		l, c := engage(t, sub.pid(), Options{}, "p:w work s=+0($arg2):string", "p:x second v=+8($arg1):x64")
		tactics(t, l, "w", "x")
		if !waitUntil(func() bool { return c.hits.Load() > 100 }) {
			t.Fatal("no hits")
		}
		l.finish(sub.pid())
	}
	sub.line()
	sub.expect("set")
	runsOn(t, sub.pid())
	if got := sub.work(); got != "done 0 0 1 1" {
		t.Errorf("the program printed %q, want done 0 0 1 1", got)
	}
	sub.end()
}

// TestHazardX9: functions that take their arguments from the stack and take them
// off it when they return (ret imm16), by whichever way their returns are seen.
func TestHazardX9(t *testing.T) {
	prog := source(t, `
#include <stdio.h>
static void setup(void) {}
long call(long n, long (*f)(void));
long one(void), many(void);
__asm__(".text\n.globl call\n.type call,@function\ncall:\npush %rbp\nmov %rsp, %rbp\npush %rdi\nlea 7(%rdi), %rax\npush %rax\ncall *%rsi\n"
        "cmp %rsp, %rbp\nje 1f\nud2\n1: pop %rbp\nret\n.size call,.-call\n"
        ".globl one\n.type one,@function\none:\nmov 8(%rsp), %rax\nimul $3, 16(%rsp), %rcx\nadd %rcx, %rax\nret $16\n.size one,.-one\n"
        ".globl many\n.type many,@function\nmany:\nmov 8(%rsp), %rax\nmov 16(%rsp), %rcx\nand $7, %ecx\n"
        ".irp i,0,1,2,3,4,5,6\ncmp $\\i, %ecx\njne 1f\nadd $\\i, %rax\nret $16\n1:\n.endr\nlea 100(%rax), %rax\nret $16\n.size many,.-many\n");
static long rounds(void) { long s = 0; for (long i = 0; i < 1000; i++) s = s * 7 + call(i, one) + 3 * call(i, many); return s; }
`+workLoop, "-O2")
	want := plain(t, prog)
	for _, o := range []Options{{}, {NoOptimize: true}} {
		sub := startSubject(t, prog)
		l := attach(t, sub.pid(), o, "p:in one a=$stack1 b=$stack2", "r:one one v=$retval", "r:args one b=$arg1", "r:many many v=$retval")
		exits := map[string]bool{}
		onTracer(t, l, func(tg *engine.Target) error {
			for _, name := range []string{"one", "args", "many"} {
				exits[name] = seesByExits(tg, name)
			}
			return nil
		})
		for _, name := range []string{"one", "args", "many"} {
			// A function with few returns is followed by them, one with many by
			// return trampolines; both are jumps.
			n, why := optimizedOf(l, name)
			if n == 1 == o.NoOptimize || exits[name] != (name != "many" && !o.NoOptimize) {
				t.Errorf("%s: %d jumps (%s), followed by exits: %v", name, n, why, exits[name])
			}
		}
		if got := sub.work(); got != want {
			t.Errorf("probed, the program printed %q, otherwise %q", got, want)
		}
		l.finish(sub.pid())
		sub.end()
		for _, st := range l.s.Stats() {
			if st.Hits != 1000 || st.Missed != 0 {
				t.Errorf("%s: %d hits, %d missed, want 1000 and 0", st.Event.Name, st.Hits, st.Missed)
			}
		}
		for _, line := range []string{"in a=0xa b=0x3", "one v=0x13 (call+0xc <- one)", "args b=0x3 (call+0xc <- one)", "many v=0xd (call+0xc <- many)"} {
			if !slices.Contains(l.sink.all(), line) {
				t.Errorf("no line %q", line)
			}
		}
	}
}
