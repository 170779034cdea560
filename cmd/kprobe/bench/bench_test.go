package bench

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"kprobe/internal/procfs"
	"kprobe/symbols"
)

// TestMain lets the test binary be the Go program that is probed.
func TestMain(m *testing.M) {
	if Subject() {
		return
	}
	os.Exit(m.Run())
}

// TestSubject wants the written file to be one that names resolve in, and the
// program to call what it is told to, so often, in every thread.
func TestSubject(t *testing.T) {
	p, err := start(t.TempDir(), 3, 20)
	if err != nil {
		t.Fatal(err)
	}
	defer p.end()
	space, err := symbols.OpenFileSpace(p.path)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(p.funcs); p.funcs[n-2].name != "many_00019" {
		t.Errorf("the last but one of %d functions is %s", n, p.funcs[n-2].name)
	}
	for _, f := range p.funcs {
		sites, err := space.Resolve(symbols.Place{Symbol: f.name})
		if err != nil {
			t.Errorf("%s: %v", f.name, err)
			continue
		}
		if got := sites[0]; uint64(got.Addr) != f.at || got.Func.Size() != f.size {
			t.Errorf("%s is at %v, %d bytes; want %#x, %d", f.name, got.Addr, got.Func.Size(), f.at, f.size)
		}
	}
	for _, fn := range []string{"work", "pushed", "floor_count", "floor_entry", "floor_return", "floor_latency", "floor_both"} {
		if fn[0] == 'f' && !rdpid() {
			continue
		}
		for threads := 1; threads <= 3; threads++ {
			if ns, err := p.call(threads, p.function(fn), 1000); err != nil || ns <= 0 {
				t.Fatalf("%s in %d threads: %v ns, %v", fn, threads, ns, err)
			}
		}
	}
	tids, err := p.tids()
	if err != nil || len(tids) != 3 {
		t.Errorf("threads %v, %v", tids, err)
	}
}

// TestRun measures for real, roughly: every kind has a figure for each number
// of threads, and that of a jump is below that of a trap.
func TestRun(t *testing.T) {
	rep, err := Run(context.Background(), Options{Threads: []int{1, 2}, Each: 30 * time.Millisecond, All: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, why := range rep.Skipped {
		t.Log(why)
		if strings.Contains(why, "recorded") {
			t.Error(why)
		}
	}
	byKind := map[string]Row{}
	for _, r := range rep.Rows {
		t.Logf("%-6s %-60s %8.1f floor %.1f lost %.3f", r.Kind, r.What, r.NS, r.Floor, r.Lost)
		if r.Kind != "floor" && !strings.HasPrefix(r.What, "Go function") && r.What != uftraceWhat && len(r.NS) != 2 {
			t.Errorf("%s: %d figures", r.What, len(r.NS))
		}
		if _, ok := byKind[r.Kind]; !ok {
			byKind[r.Kind] = r
		}
	}
	for _, k := range append(kinds(), goKinds()...) {
		if _, ok := byKind[k.name]; !ok {
			t.Errorf("no row for %s", k.name)
		}
		row := rep.Rows[slices.IndexFunc(rep.Rows, func(r Row) bool { return r.What == k.what })]
		if sequences() && k.floor.sequenced() > floorSeqCount && row.Sequence <= 0 {
			t.Errorf("%s: no floor in restartable sequences", k.what) // a processor without rdpid has it, too
		}
	}
	b, o := byKind["b"], byKind["o"]
	if o.NS[0]*5 > b.NS[0] {
		t.Errorf("a jump costs %.0f ns and a breakpoint %.0f", o.NS[0], b.NS[0])
	}
	if b.Floor < 5*o.NS[0] {
		t.Errorf("the least for a breakpoint is %.0f ns, a jump costs %.0f", b.Floor, o.NS[0])
	}
	checkCosts(t, rep.Costs)
	checkWork(t, rep.Work)
	checkPeers(t, rep.Rows)
}

// checkCosts wants a row for all that a program does, and a tracer's signals to cost more than
// those of a program that was left: each is a stop, some twenty times what a signal costs. The other
// ratios are near to each other and vary with the machine's load.
func checkCosts(t *testing.T, costs []Cost) {
	if len(costs) != int(taskKinds) {
		t.Fatalf("%d costs, want %d", len(costs), taskKinds)
	}
	for k, c := range costs {
		t.Logf("%-45s %10.0f %.2f", c.What, c.NS, c.With)
		if c.What != taskKind(k).what() || c.NS <= 0 {
			t.Errorf("cost %d is %+v", k, c)
		}
		for i, with := range c.With {
			if with.NS <= 0 || with.Ratio <= 0 {
				t.Errorf("%s, way %d: %+v", c.What, i, with)
			}
		}
		left, held := c.With[WithLeft].Ratio, c.With[WithBreakpoint].Ratio
		if taskKind(k) == taskSignal && held < left*1.5 {
			t.Errorf("%s costs %.2f times as much with a tracer, %.2f times without", c.What, held, left)
		}
	}
}

// TestTasks has the subject do each thing that costs are measured of: a child or thread
// that isn't made, or doesn't end as it should, ends the subject.
func TestTasks(t *testing.T) {
	m := &meter{dir: t.TempDir()}
	p, err := m.tasked()
	if err != nil {
		t.Fatal(err)
	}
	defer p.end()
	for k := range taskKinds {
		if ns, err := p.call(1, p.function(k.name()), 20); err != nil || ns <= 0 {
			t.Errorf("%s: %v ns, %v", k.name(), ns, err)
		}
	}
	if tids, err := p.tids(); err != nil || len(tids) != 1 {
		t.Errorf("threads %v, %v", tids, err)
	}
	if kids, err := procfs.Thread(p.pid, p.pid).Children(); err != nil || len(kids) != 0 {
		t.Errorf("children %v, %v", kids, err)
	}
}

// checkWork wants a figure for all that Options.All promises, and the target's
// memory to grow by no more than a probe may take.
func checkWork(t *testing.T, work []Work) {
	found := map[string]int{}
	for _, f := range work {
		t.Logf("%-70s %12.3f %s", f.What, f.Value, f.Unit)
		if f.Value < 0 || f.Value == 0 && !strings.Contains(f.What, "lost") {
			t.Errorf("%s: %g %s", f.What, f.Value, f.Unit)
		}
		for _, part := range []string{"lines of ", "armed", "taken out", "at the longest", "in all", "memory", "record"} {
			if strings.Contains(f.What, part) {
				found[part]++
			}
		}
		limit := 640.0 // with a sequence, and the locked way beside it
		switch {
		case strings.Contains(f.What, "by return trampolines"):
			limit += 65*32 + 192 // the return trampolines of a thousandth of 2^16 instances, and what lies between
		case strings.Contains(f.What, "return probes"):
			limit += 352 // two detours, whose call it is, and what lies between
		}
		if !procfs.CPUHas("rdpid") {
			limit += 2 * 4 // lsl and its operand instead, in each of two detours
		}
		if strings.Contains(f.What, "recorded") && f.Unit == "bytes" {
			limit = 40 // a record with 2 arguments is 32
			if strings.Contains(f.What, "compressed") {
				limit = 16
			}
		}
		if f.Unit == "bytes" && f.Value > limit {
			t.Errorf("%s: %.0f bytes, more than %.0f", f.What, f.Value, limit)
		}
		if f.Unit == "1/s" && f.Value < 100000 {
			t.Errorf("%s: %.0f a second", f.What, f.Value)
		}
	}
	want := map[string]int{"lines of ": 4, "armed": 3, "taken out": 4, "at the longest": 3, "in all": 3, "memory": 5, "record": 6}
	for part, n := range want {
		if found[part] != n {
			t.Errorf("%d figures tell of %q, want %d", found[part], part, n)
		}
	}
}
