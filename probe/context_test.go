package probe

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// TestTraceContext: the trace and the span of the thread are values, of entries and
// returns, by jumps and by breakpoints; a thread without any has faults. Filters
// compare them by their digits.
func TestTraceContext(t *testing.T) {
	for _, flags := range [][]string{{"-O2", "-rdynamic", "-lpthread"}, {"-O2", "-rdynamic", "-lpthread", "-fPIC", "-ftls-model=global-dynamic"}} {
		prog := fixture.Build(t, "probe_context.c", flags...)
		var want, returns []string
		for n := range 3 {
			n++
			trace, span := "", ""
			for i := range 16 {
				trace += fmt.Sprintf("%02x", 16*n+i)
			}
			for i := range 8 {
				span += fmt.Sprintf("%02x", byte(0xf0-16*i+n))
			}
			for i := range 4 {
				tr, sp := trace, span
				if i&1 == 0 {
					tr, sp = "(fault)", "(fault)"
				}
				want = append(want, fmt.Sprintf("e n=%d trace=%s span=%s", 100*n+i, tr, sp))
				returns = append(returns, fmt.Sprintf("r trace=%s", tr))
			}
		}
		for _, o := range []Options{{}, {NoOptimize: true}} {
			l := unharmed(t, prog, o, []string{
				"p:e work n=$arg1:s32 trace=$trace_id span=$span_id", "r:r work trace=$trace_id",
				"p:number work n=$arg1:s32 span=$span_id if span == f3e3d3c3b3a39383",
			}, "3")
			var got, ret, text, number []string
			for _, line := range l.sink.all() {
				switch line[:2] {
				case "e ":
					got = append(got, line)
				case "r ":
					line, _, _ = strings.Cut(line, " (work")
					line, _, _ = strings.Cut(line, " (main")
					line, _, _ = strings.Cut(line, " (request")
					ret = append(ret, line)
				case "nu":
					number = append(number, line)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%v %v: entries\n%s\nwant\n%s", flags, o.NoOptimize, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			if !slices.Equal(ret, returns) {
				t.Errorf("%v %v: returns\n%s\nwant\n%s", flags, o.NoOptimize, strings.Join(ret, "\n"), strings.Join(returns, "\n"))
			}
			text = unharmed(t, prog, o, []string{`p:text work n=$arg1:s32 trace=$trace_id if trace == "202122232425262728292a2b2c2d2e2f"`}, "3").sink.all()
			if len(text) != 2 || !strings.Contains(text[0], "n=201") || !strings.Contains(text[1], "n=203") {
				t.Errorf("filtered by trace: %q", text)
			}
			if len(number) != 2 || !strings.Contains(number[0], "n=301") {
				t.Errorf("filtered by span: %q", number)
			}
			for _, st := range l.sum.Stats {
				if name := st.Event.Name; !o.NoOptimize && (name == "e" || name == "number") && (st.Trapped < st.Places) != readsBases() {
					t.Errorf("%s: %d of %d places are breakpoints", name, st.Trapped, st.Places)
				}
			}
		}
	}
}

// TestTraceContextNone: where nothing is published, or there are no goroutines, that is
// an error.
func TestTraceContextNone(t *testing.T) {
	sub := startSubject(t, callsFixture(t), "work", "1")
	s, err := Attach(context.Background(), []int{sub.pid()}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"$trace_id": "otel_thread_ctx_v1", "$span_id": "otel_thread_ctx_v1", "$goid": "no goroutines"} {
		if err := s.Arm(context.Background(), parseDefs(t, "p work v="+name)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
	sub.work()
	sub.end()
}

// TestGoroutineID: $goid is the number that the goroutine has in its own tracebacks, by
// jumps and by breakpoints, and filters compare it; in stripped programs, too.
func TestGoroutineID(t *testing.T) {
	for _, c := range []struct {
		flags []string
		Options
	}{{}, {Options: Options{NoOptimize: true}}, {flags: []string{"-ldflags=-s -w"}}, {flags: []string{"-ldflags=-s -w", "-buildmode=pie"}}} {
		o := c.Options
		sub := startSubject(t, fixture.Build(t, "goid/probe_goid.go", c.flags...))
		l := attach(t, sub.pid(), o, "p:e main.work id=%ax:u64 goid=$goid", "r:r main.work goid=$goid", "p:none main.work goid=$goid if goid == 0")
		sub.work()
		l.finish(sub.pid())
		sub.end()
		n, ids := 0, map[string]bool{}
		for _, line := range l.sink.all() {
			if !strings.HasPrefix(line, "e ") {
				continue
			}
			n++
			var id, goid int
			if _, err := fmt.Sscanf(line, "e id=%d goid=%d", &id, &goid); err != nil || id != goid || id == 0 {
				t.Errorf("%s, %v", line, err)
			}
			ids[fmt.Sprint(goid)] = true
		}
		if n != 80 || len(ids) != 8 {
			t.Errorf("%d hits of %d goroutines, want 80 of 8", n, len(ids))
		}
		for _, st := range l.sum.Stats {
			switch name := st.Event.Name; {
			case name == "none" && st.Filtered != 80, name == "r" && st.Recorded != 80:
				t.Errorf("%s: %+v", name, st)
			case !o.NoOptimize && (st.Trapped < st.Places) != readsBases():
				t.Errorf("%s: %d of %d places are breakpoints", name, st.Trapped, st.Places)
			}
		}
	}
}

// TestGoroutineLabels: labels that a program gives its goroutines (runtime/pprof) are
// texts, by jumps and by breakpoints, at entries and returns, in filters, alone and all
// together.
func TestGoroutineLabels(t *testing.T) {
	for _, c := range []struct {
		flags []string
		Options
	}{{}, {Options: Options{NoOptimize: true}}, {flags: []string{"-ldflags=-s -w"}}} {
		sub := startSubject(t, fixture.Build(t, "goid/probe_goid.go", c.flags...))
		defs := []string{
			"p:e main.work goid=$goid id=$label.id odd=$label.odd long=$label.a.longer/name-of-20",
			"r:r main.work goid=$goid id=$label.id", "p:none main.work v=$label.a.longer/name-of-22", `p:few main.work id=$label.id odd=$label.odd if odd == "x"`,
		}
		if c.NoOptimize {
			defs = append(defs, "p:all main.work goid=$goid all=$labels")
		}
		l := attach(t, sub.pid(), c.Options, defs...)
		sub.work()
		l.finish(sub.pid())
		sub.end()
		n := map[string]int{}
		for _, line := range l.sink.all() {
			line, _, _ = strings.Cut(line, " (main.")
			name, rest, _ := strings.Cut(line, " ")
			n[name]++
			var goid int
			_, _ = fmt.Sscanf(rest, "goid=%d", &goid)
			odd := strings.Repeat("x", goid%2)
			want := map[string]string{
				"e":    fmt.Sprintf(`goid=%d id="%d" odd="%s" long="long %d"`, goid, goid, odd, goid),
				"r":    fmt.Sprintf(`goid=%d id="%d"`, goid, goid),
				"none": "v=(fault)",
				"all":  fmt.Sprintf(`goid=%d all={["a.longer/name-of-20"]="long %d",["a.longer/name-of-21"]="other",["id"]="%d",["odd"]="%s"}`, goid, goid, goid, odd),
			}[name]
			if name != "few" && rest != want || name == "few" && !strings.HasSuffix(rest, ` odd="x"`) {
				t.Errorf("%v: %s, want %s", c.flags, line, want)
			}
		}
		if n["e"] != 80 || n["r"] != 80 || n["none"] != 80 || n["all"] != 80 && c.NoOptimize {
			t.Errorf("%v: hits %v", c.flags, n)
		}
		for _, st := range l.sum.Stats {
			switch name := st.Event.Name; {
			case name == "few" && (int(st.Recorded) != n["few"] || st.Recorded+st.Filtered != 80):
				t.Errorf("few: %+v", st)
			case !c.NoOptimize && (st.Trapped < st.Places) != readsBases():
				t.Errorf("%s: %d of %d places are breakpoints", name, st.Trapped, st.Places)
			}
		}
	}
}
