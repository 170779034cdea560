package probe

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// gdbStacks prints a line for each stop at one of the places in the
// environment, addresses of the program's file: the address of each frame that is not inlined, innermost first,
// modulo the size of a page, which no randomization changes.
const gdbStacks = `
import gdb, os
for line in "pagination off", "confirm off", "backtrace past-main on", "backtrace past-entry on", "backtrace limit 400", "debuginfod enabled off", "auto-load safe-path /nowhere":
    try: gdb.execute("set " + line)
    except gdb.error: pass
gdb.execute("starti > /dev/null", to_string=True)
prog = os.path.realpath(gdb.current_progspace().filename)
start = min(int(l.split("-")[0], 16) for l in open("/proc/%d/maps" % gdb.selected_inferior().pid) if l.rstrip().endswith(prog))
for place in os.environ["PLACES"].split(","):
    gdb.execute("break *%d" % (start - int(os.environ["FIRST"]) + int(place)), to_string=True)
gdb.execute("handle all nostop noprint pass", to_string=True)
gdb.execute("continue", to_string=True)
while gdb.selected_inferior().pid and gdb.selected_thread():
    f, words = gdb.newest_frame(), []
    while f and f.is_valid():
        if f.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME) and f.pc():
            words.append("%x" % (f.pc() & 0xfff))
        try: f = f.older()
        except gdb.error: break
    print("STACK " + " ".join(words), flush=True)
    gdb.execute("continue", to_string=True)
`

// stackOf is a stack as gdbStacks prints it.
func stackOf(list []symbols.StackFrame) string {
	words := make([]string, len(list))
	for i, at := range list {
		words[i] = fmt.Sprintf("%x", uint64(at.Addr)&0xfff)
	}
	return strings.Join(words, " ")
}

// stackSink keeps the stacks of hits.
type stackSink struct {
	stacks []string
	ends   []symbols.StackEnd
	names  [][]string
}

func (s *stackSink) Hit(h *Hit) error {
	s.stacks = append(s.stacks, stackOf(h.Stack))
	s.ends = append(s.ends, h.StackEnd)
	var names []string
	for _, at := range h.Stack {
		a := at.Addr
		if at.Call {
			a--
		}
		name, _, _, _, _ := h.Space.Symbolize(a)
		names = append(names, name)
	}
	s.names = append(s.names, names)
	return nil
}

// stackEnv has Go's runtime send no signals: gdb sees a breakpoint twice where a
// handler returns to it.
func stackEnv() []string { return append(os.Environ(), "GODEBUG=asyncpreemptoff=1") }

// traceCommand runs a command under definitions.
func traceCommand(t *testing.T, o Options, sink Sink, argv []string, defs ...string) Summary {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	s, err := Start(ctx, Command{Path: argv[0], Args: argv, Env: stackEnv(), Stdin: null, Stdout: null, Stderr: null}, o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	}()
	if err := s.Arm(ctx, parseDefs(t, defs...)); err != nil {
		t.Fatal(err)
	}
	sum, err := s.Run(ctx, sink)
	if err != nil {
		t.Fatalf("run: %v", err)
	}
	return sum
}

// instructions are the offsets of a function's instructions that can be
// probed.
func instructions(t *testing.T, prog, fn string) (offs []uint64) {
	t.Helper()
	space, err := symbols.OpenFileSpace(prog)
	if err != nil {
		t.Fatal(err)
	}
	list, err := inspectAll(space, symbols.Place{Symbol: fn})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range list[0].Lines {
		if l.Probe != KindRefused {
			offs = append(offs, l.Offset)
		}
	}
	return offs
}

// TestStackAgainstGDB compares the stacks at every instruction of functions,
// prologues and epilogues too, with gdb's at the same place.
func TestStackAgainstGDB(t *testing.T) {
	gdb := fixture.NeedTool(t, "gdb")
	script := filepath.Join(t.TempDir(), "stacks.py")
	if err := os.WriteFile(script, []byte(gdbStacks), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		src, flags string
		funcs      []string
	}{
		{"stack_calls.c", "-g -O2 -fomit-frame-pointer", []string{"leaf", "plain", "saves", "variable", "aligned", "host"}},
		{"stack_calls.c", "-O0 -fno-omit-frame-pointer", []string{"variable", "compare"}},
		{"stack_calls.cc", "-g -O2", []string{"thrower", "middle", "Visitor::visit"}},
		{"dwarf_vars.rs", "-g -O", []string{"dwarf_vars::text", "dwarf_vars::shapes"}},
		{"dwarf_vars.go", "", []string{"main.text", "main.whole"}},
		{"dwarf_vars.go", "stripped", []string{"main.text", "main.whole"}},
	} {
		t.Run(c.src+c.flags, func(t *testing.T) {
			t.Parallel()
			flags, strip := strings.CutSuffix(c.flags, "stripped")
			prog := fixture.Build(t, c.src, strings.Fields(flags)...)
			reference := prog // gdb needs the debug information
			if strip {
				prog = filepath.Join(t.TempDir(), "stripped")
				if out, err := exec.Command(fixture.NeedTool(t, "objcopy"), "--strip-all", reference, prog).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
			space, err := symbols.OpenFileSpace(prog)
			if err != nil {
				t.Fatal(err)
			}
			var places, defs []string
			for _, fn := range c.funcs {
				sites, err := space.Resolve(symbols.Place{Symbol: fn})
				if err != nil {
					t.Fatal(err)
				}
				raw := sites[0].Func.Symbol.Name
				for _, off := range instructions(t, prog, fn) {
					places = append(places, fmt.Sprint(uint64(sites[0].Func.Start)+off))
					defs = append(defs, fmt.Sprintf("p:e/%s_%d %s+%d stack=127", "x"+fmt.Sprint(len(defs)), off, raw, off))
				}
			}
			cmd := exec.Command(gdb, "-nx", "-batch", "-x", script, "--args", reference, "1")
			first := space.Mappings()[0].Start &^ 4095
			cmd.Env = append(stackEnv(), "PLACES="+strings.Join(places, ","), fmt.Sprintf("FIRST=%d", first))
			out, err := cmd.CombinedOutput()
			var want []string
			for l := range strings.Lines(string(out)) {
				if s, ok := strings.CutPrefix(strings.TrimSpace(l), "STACK "); ok {
					want = append(want, s)
				}
			}
			if len(want) < 20 {
				t.Fatalf("gdb saw %d stops: %v\n%s", len(want), err, out)
			}
			sink := &stackSink{}
			traceCommand(t, Options{NoOptimize: true}, sink, []string{prog, "1"}, defs...)
			compare := func(got *stackSink, want []string) {
				if strings.HasSuffix(c.src, ".go") {
					n := len(got.stacks)
					if got, want = sameTimes(got, want); len(want) < n*2/3 {
						t.Errorf("only %d of %d stops can be compared", len(want), n)
					}
				}
				compareStacks(t, got, want)
			}
			compare(sink, want)
			// With jumps, some of the places: of neighbours only one can be a jump.
			const apart = 9
			for _, from := range []int{0, 5} {
				sink, some, part := &stackSink{}, map[string]bool{}, []string(nil)
				for i := from; i < len(defs); i += apart {
					n, _ := strconv.Atoi(places[i])
					some[fmt.Sprintf("%x", n&0xfff)] = true
					part = append(part, defs[i])
				}
				sum := traceCommand(t, Options{}, sink, []string{prog, "1"}, part...)
				for _, st := range sum.Stats {
					if st.Hits != st.Recorded {
						t.Errorf("%s: %+v", st.Event.Def.Text, st)
					}
				}
				var there []string
				for _, w := range want {
					if first, _, _ := strings.Cut(w, " "); some[first] {
						there = append(there, w)
					}
				}
				compare(sink, there)
			}
		})
	}
}

// TestStackOfOwnStack: the stack of a handler with a stack of its own goes on to
// what the signal interrupted.
func TestStackOfOwnStack(t *testing.T) {
	prog := fixture.Build(t, "stack_calls.c", "-O1", "-fno-optimize-sibling-calls")
	for _, jump := range []bool{false, true} {
		sink := &stackSink{}
		traceCommand(t, Options{NoOptimize: !jump}, sink, []string{prog, "1"}, "p:e/h on_signal stack")
		if len(sink.names) != 2 {
			t.Fatalf("jump %t: %q", jump, sink.names)
		}
		for i, names := range sink.names {
			across := slices.Contains(names, "interrupted") && slices.Contains(names, "rounds") && slices.Contains(names, "main")
			if !across || sink.ends[i] != symbols.StackWhole {
				t.Errorf("jump %t: %q, %v", jump, names, sink.ends[i])
			}
		}
	}
}

// sameTimes leaves the stops at places that both saw as often, sorted. Whether a
// goroutine's stack grows at an entry, and the entry runs twice, is chance.
func sameTimes(got *stackSink, want []string) (*stackSink, []string) {
	first := func(s string) string { f, _, _ := strings.Cut(s, " "); return f }
	count := map[string]int{}
	for _, s := range want {
		count[first(s)]++
	}
	for _, s := range got.stacks {
		count[first(s)]--
	}
	order := make([]int, len(got.stacks))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(x, y int) int { return strings.Compare(got.stacks[x], got.stacks[y]) })
	out := &stackSink{}
	for _, i := range order {
		s := got.stacks[i]
		if count[first(s)] == 0 {
			out.stacks, out.ends, out.names = append(out.stacks, s), append(out.ends, got.ends[i]), append(out.names, got.names[i])
		}
	}
	want = slices.DeleteFunc(slices.Clone(want), func(s string) bool { return count[first(s)] != 0 })
	slices.Sort(want)
	return out, want
}

// compareStacks compares stacks with gdb's. One that was cut must be the
// beginning of gdb's.
func compareStacks(t *testing.T, got *stackSink, want []string) {
	t.Helper()
	if len(got.stacks) != len(want) {
		t.Errorf("%d stacks, gdb has %d", len(got.stacks), len(want))
	}
	bad, allOrNone := 0, 0
	for i := range min(len(want), len(got.stacks)) {
		s, w := got.stacks[i], want[i]
		n := strings.Count(s, " ") + 1
		ok := s == w
		if ok {
			allOrNone++
		} else if n == 127 || got.ends[i] == symbols.StackTruncated {
			ok = strings.HasPrefix(w, s) && n >= 3
		}
		if !ok {
			if bad++; bad < 5 {
				t.Errorf("stop %d: %v\n  %s %v\ngdb: %s", i, got.names[i], s, got.ends[i], w)
			}
		}
	}
	t.Logf("%d stacks, %d whole and the same as gdb's, %d not", len(want), allOrNone, bad)
	if bad > 0 || allOrNone < len(want)/2 {
		t.Errorf("%d of %d stacks are not gdb's", bad, len(want))
	}
	if slices.Contains(got.ends, symbols.StackUnknown) {
		t.Error("a walk found no caller")
	}
}
