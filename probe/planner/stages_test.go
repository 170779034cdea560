package planner

import (
	"bytes"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe/assess"
	"kprobe/symbols"
)

// TestManyProbesShareAPlace: all of them have one jump, up to the number that its stages can count. Stages of
// the jump divide its requests among them.
func TestManyProbesShareAPlace(t *testing.T) {
	space, err := symbols.OpenFileSpace(fixture.Build(t, "probe_calls.c", "-O2"))
	if err != nil {
		t.Fatal(err)
	}
	g, rule := fileGround(space)
	one := wants(t, space, rule, Facts{Silent: true, Counts: true, Anywhere: true}, "p work", "r work")
	if len(one) != 2 {
		t.Fatalf("%d places", len(one))
	}
	for _, tt := range []struct {
		entries, returns int
		jump             bool
	}{
		{300, 300, true},
		{math.MaxUint16, 0, true},
		{math.MaxUint16 + 1, 0, false},
	} {
		var ws []Request
		for i := range tt.entries + tt.returns {
			w := one[0]
			if i >= tt.entries {
				w = one[1]
			}
			p := *w.P
			p.Id, w.P = uint32(i+1), &p
			ws = append(ws, w)
		}
		b, err := g.Plan(Wanted{Requests: ws})
		if err != nil {
			t.Fatal(err)
		}
		served, known := map[*Probe]int{}, map[*Probe]int{}
		for _, p := range b.Patches {
			for q := p; q != nil; q = q.Island {
				for i := range q.Stages {
					for _, w := range q.Stages[i].Wants() {
						served[w.P]++
					}
				}
			}
			for _, w := range p.Wants {
				known[w.P]++
			}
		}
		for _, w := range ws {
			if tt.jump != (served[w.P] > 0) || tt.jump != (known[w.P] > 0) || served[w.P] > known[w.P] {
				t.Errorf("%d entries, %d returns: probe %d is served %d times of %d: %s", tt.entries, tt.returns, w.P.Id, served[w.P], known[w.P], b.Courses[w.P].Why)
				break
			}
		}
		if why := b.Courses[ws[0].P].Why; !tt.jump && (len(b.Traps) != len(ws) || !strings.Contains(why, "too many probes")) {
			t.Errorf("%d entries, %d returns: %d breakpoints: %s", tt.entries, tt.returns, len(b.Traps), why)
		}
	}
}

// TestStagesKnowTheirPlaces: what stages refer to in their patch, or in its island, is theirs.
func TestStagesKnowTheirPlaces(t *testing.T) {
	space, err := symbols.OpenFileSpace(fixture.NeedFile(t, "/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6"))
	if err != nil {
		t.Fatal(err)
	}
	g, rule := fileGround(space)
	entries := wants(t, space, rule, Facts{Silent: true, Counts: true, Anywhere: true}, "p str*", "p *mem*")
	b, err := g.Plan(Wanted{Requests: inside(entries, rule)})
	if err != nil {
		t.Fatal(err)
	}
	served, islands := 0, 0
	for _, p := range b.Patches {
		for q := p; q != nil; q = q.Island {
			for i := range q.Stages {
				if served += len(q.Stages[i].Wants()); q != p {
					islands++
				}
				checkStage(t, space, q, i)
			}
		}
	}
	if served < 1000 || islands < 10 {
		t.Errorf("%d requests are served, %d stages are of islands, want more", served, islands)
	}
}

// inside adds probes of about one of three instructions of the functions, so that jumps share bytes.
func inside(entries []Request, rule *assess.Assessor) []Request {
	rng := rand.New(rand.NewPCG(1, 2))
	out := entries
	for _, w := range entries {
		for off := uint64(1); off < uint64(w.Site.Func.End-w.Site.Func.Start); off++ {
			site := w.Site
			site.Addr, site.Vaddr, site.Offset = site.Addr+symbols.Addr(off), site.Vaddr+symbols.Vaddr(off), site.Offset+off
			found, err := rule.Instruction(site)
			if err != nil || rng.IntN(3) > 0 {
				continue
			}
			for range 1 + rng.IntN(2) {
				p := *w.P
				p.Id, p.Where = uint32(len(out)+1), &found.Site
				out = append(out, Request{Place: &found, P: &p, Kind: Entry})
			}
		}
	}
	return out
}

// checkStage checks what the i-th stage of a patch, or of an island, refers to.
func checkStage(t *testing.T, space *symbols.Space, q *Patch, i int) {
	t.Helper()
	const endbr = 4 // stays in front of a jump that serves it
	st, first := &q.Stages[i], symbols.Addr(q.Plan.At)
	for _, w := range st.Wants() {
		if w.Site.Addr != st.At && (w.Site.Addr != st.At-endbr || st.At != first) {
			t.Errorf("%v: the stage at %v serves a probe at %v", first, st.At, w.Site.Addr)
		}
	}
	code, m := st.Code(), space.ModuleAt(st.At)
	text, err := m.File.Text(m.Vaddr(st.At), max(1, len(code)))
	if err != nil || !bytes.Equal(code, text[:len(code)]) {
		t.Errorf("%v: the stage at %v has %x, not %x: %v", first, st.At, code, text, err)
	}
	copies, from := st.Moved().Code, st.CopyAt()-st.Base
	if len(copies) != st.Copied() || len(copies) == 0 != (len(code) == 0) || !bytes.Equal(copies, q.Text(i)[from:][:len(copies)]) {
		t.Errorf("%v: the copies of the stage at %v are %x, not in %x", first, st.At, copies, q.Text(i))
	}
	last, serves := i+1 == len(q.Stages), st.Probed()
	if len(code) > 0 && (st.Onward() != 0) != (!last && serves) {
		t.Errorf("%v: the stage at %v, %d of %d, leads to %v", first, st.At, i, len(q.Stages), st.Onward())
	}
	if end := st.Base + symbols.Addr(st.Size); !last && !serves && q.Stages[i+1].Base != end {
		t.Errorf("%v: the copies of the stage at %v run on to %v, and the next stage begins at %v", first, st.At, end, q.Stages[i+1].Base)
	}
}
