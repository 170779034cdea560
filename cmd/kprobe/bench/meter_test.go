package bench

import (
	"runtime"
	"testing"
	"time"

	"kprobe/probe/ring"
)

// said is a caller that gives prepared times, the last one again and again, and
// notes how many calls it was asked for.
type said struct {
	ns   []float64
	runs []int
}

func (s *said) call(_ int, _ uint64, n int) (float64, error) {
	s.runs = append(s.runs, n)
	ns := s.ns[0]
	if len(s.ns) > 1 {
		s.ns = s.ns[1:]
	}
	return ns, nil
}

// TestRoundsWarmUp wants a call to be taken for dear only if each of several runs
// says so, and a cheap one to have filled the ring of each thread before anything
// is counted: pages that are faulted in make a hit five times as dear.
func TestRoundsWarmUp(t *testing.T) {
	for _, c := range []struct {
		name    string
		threads int
		ns      []float64
		cheap   bool
	}{
		{"cheap", 1, []float64{10}, true},
		{"a slow start", 1, []float64{9000, 700, 600, 10}, true},
		{"two threads, a slow start", 2, []float64{9000, 700, 10}, true},
		{"dear, the start worse", 1, []float64{90000, 14000}, false},
	} {
		s := &said{ns: c.ns}
		m := &meter{o: Options{Each: time.Microsecond}}
		got, err := m.rounds(lane{in: s, threads: c.threads})
		last := c.ns[len(c.ns)-1]
		if err != nil || got[0] != last {
			t.Errorf("%s: %v ns, %v; want %v", c.name, got, err, last)
		}
		counted := s.runs[len(s.runs)-1]
		if (counted >= most/c.threads) != c.cheap {
			t.Errorf("%s: %d calls in a run", c.name, counted)
		}
		if !c.cheap {
			if want := int(float64(turn.Nanoseconds()) / last); counted != want {
				t.Errorf("%s: %d calls in a run, want %d", c.name, counted, want)
			}
			continue
		}
		before := 0
		for _, n := range s.runs[:len(s.runs)-fewest] {
			before += n
		}
		const smallest = 32 // bytes of a record
		rings := min(c.threads, runtime.NumCPU())
		if before*c.threads/rings*smallest < ring.DefaultRingSize {
			t.Errorf("%s: %d calls in each thread come before what is counted", c.name, before)
		}
	}
}

// paged is a caller whose calls leave records in a ring: each page of it costs as much as a
// busy virtual machine takes to fault it in, once.
type paged struct {
	record  int
	written int
	runs    []int
}

func (p *paged) call(_ int, _ uint64, n int) (float64, error) {
	const page, fault, hit = 4096, 60_000, 20
	p.runs = append(p.runs, n)
	before := p.written
	p.written += n * p.record
	faults := min(p.written, ring.DefaultRingSize)/page - min(before, ring.DefaultRingSize)/page
	return float64(faults*fault)/float64(n) + hit, nil
}

// TestRoundsFaults wants a hit that faults a page in at each try, because its record is
// long, to be measured by calls that fault none in.
func TestRoundsFaults(t *testing.T) {
	for _, record := range []int{24, 32, 40, 64, 80} {
		p := &paged{record: record}
		m := &meter{o: Options{Each: time.Microsecond}}
		got, err := m.rounds(lane{in: p, threads: 1})
		if err != nil || got[0] != 20 {
			t.Errorf("records of %d bytes: %v ns, %v", record, got, err)
		}
		if n := p.runs[len(p.runs)-1]; n != most {
			t.Errorf("records of %d bytes: %d calls in a run", record, n)
		}
	}
}

// drifting is a machine that becomes slower with each run. A call with a probe costs six times as much as one without.
type drifting struct{ runs int }

func (d *drifting) call(_ int, fn uint64, _ int) (float64, error) {
	d.runs++
	return float64(1+5*fn) * (1 + float64(d.runs)/50), nil
}

// TestLanesInTurns: what a machine's drift adds to one number of threads, it adds to the others.
func TestLanesInTurns(t *testing.T) {
	m, d, row := &meter{o: Options{Each: time.Microsecond}}, &drifting{}, Row{}
	if err := m.lanes(&row, []int{1, 2, 4}, lane{in: d, fn: 1}, lane{in: d}, noFloor); err != nil {
		t.Fatal(err)
	}
	for i, ns := range row.NS {
		if ratio := ns / row.NS[0]; ratio < 0.9 || ratio > 1.1 {
			t.Errorf("%v ns, number %d is %.2f of the first", row.NS, i, ratio)
		}
	}
}
