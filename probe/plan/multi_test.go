package plan

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func TestSeveralSites(t *testing.T) {
	// +0 push rbp; +1 mov rbp, rsp; +4 push rbx; +5 sub rsp, 8; +9 mov ebx, edi;
	// +b test edi, edi; +d ret
	const prologue = "55 48 89 e5 53 48 83 ec 08 89 fb 85 ff c3"
	for _, tt := range []struct {
		name  string
		code  string
		sites []Site
		taken []Range
		want  []string
	}{
		{
			name: "under one jump", code: prologue,
			sites: []Site{{Addr: base}, {Addr: base + 1}, {Addr: base + 4}},
			want:  []string{"guarded window at +0x0 [+0x0: e9cc0000cc] moves 5 locks 5 guard +0x1=cc guard +0x4=cc for +0x0 +0x1 +0x4"},
		},
		{
			name: "in any order, twice", code: prologue,
			sites: []Site{{Addr: base + 4}, {Addr: base}, {Addr: base + 4}, {Addr: base}},
			want:  []string{"guarded window at +0x0 [+0x0: e9cc0000cc] moves 5 locks 5 guard +0x1=cc guard +0x4=cc for +0x0 +0x4"},
		},
		{
			name: "side by side", code: prologue,
			sites: []Site{{Addr: base}, {Addr: base + 5}},
			want: []string{
				"guarded window at +0x0 [+0x0: e9cc0000cc] moves 5 locks 5 guard +0x1=cc guard +0x4=cc for +0x0",
				"guarded window at +0x5 [+0x5: e9000000cc] moves 6 locks 6 guard +0x9=cc for +0x5",
			},
		},
		{
			name: "a handler keeps its site out of a window", code: prologue,
			sites: []Site{{Addr: base}, {Addr: base + 4, Trap: true}, {Addr: base + 5}},
			want: []string{
				"breakpoint at +0x0 [+0x0: cc] moves 1 locks 1 for +0x0",
				"breakpoint at +0x4 [+0x4: cc] moves 1 locks 1 for +0x4",
				"guarded window at +0x5 [+0x5: e9000000cc] moves 6 locks 6 guard +0x9=cc for +0x5",
			},
		},
		{
			name: "a jump of the next site's bytes", code: "31 c0 ff c0 eb fc 90 90 90",
			sites: []Site{{Addr: base}, {Addr: base + 2}},
			want: []string{
				"punned jump at +0x0 [+0x0: e900] moves 2 locks 5 for +0x0 over tail and padding at +0x2 [+0x2: e900cc1000] moves 4 locks 5 guard +0x4=cc for +0x2",
			},
		},
		{
			// 74 00: both returns are led to by themselves.
			name: "returns side by side", code: "74 04 75 03 74 02 c3 c3 c3 90 90 90 90",
			sites: []Site{{Addr: base + 6}, {Addr: base + 7}, {Addr: base + 8}},
			want:  []string{"punned jump at +0x6 [+0x6: e9] moves 1 locks 5 for +0x6 over punned jump at +0x7 [+0x7: e9] moves 1 locks 5 for +0x7 over tail and padding at +0x8 [+0x8: e910000101] moves 1 locks 5 for +0x8"},
		},
		{
			name: "a return before another whose instructions lie under it", code: "7e 02 76 01 c3 31 c0 c3 66 90",
			sites: []Site{{Addr: base + 4}, {Addr: base + 7}},
			want:  []string{"punned jump at +0x4 [+0x4: e9] moves 1 locks 5 for +0x4 over tail and padding at +0x5 [+0x5: e900cc0001] moves 3 locks 5 guard +0x7=cc for +0x7"},
		},
		{
			name: "not where a handler runs", code: "7e 02 76 01 c3 31 c0 c3 66 90",
			sites: []Site{{Addr: base + 4}, {Addr: base + 7, Trap: true}},
			want: []string{
				"bypass at +0x0 [+0x0: e900cc00cc] moves 5 locks 5 guard +0x2=cc guard +0x4=cc for +0x4",
				"breakpoint at +0x7 [+0x7: cc] moves 1 locks 1 for +0x7",
			},
		},
		{
			// The branch at +2 gives way; the guard has what comes by other ways.
			name: "a return that has no room", code: "31 c0 75 07 89 c8 e9 00 10 00 00 c3 48 89 c8 48 01 c8 c3",
			sites: []Site{{Addr: base + 0xb}, {Addr: base + 0xc}},
			want: []string{
				"bypass at +0xb [+0xb: cc] moves 1 locks 1 guard +0xb=cc for +0xb over guarded window at +0x2 [+0x2: e900cc00cc] moves 9 locks 9 guard +0x4=cc guard +0x6=cc for ",
				"guarded window at +0xc [+0xc: e90000cc00] moves 6 locks 6 guard +0xf=cc for +0xc",
			},
		},
		{
			name: "an earlier patch stands", code: prologue,
			sites: []Site{{Addr: base + 1}, {Addr: base + 9}},
			taken: []Range{{base + 5, base + 10}},
			want: []string{
				"breakpoint at +0x1 [+0x1: cc] moves 3 locks 1 for +0x1",
				"refused at +0x9 moves 2 for +0x9",
			},
		},
		{
			name: "endbr64 and what follows it", code: "f3 0f 1e fa 48 83 ec 18 c3 90",
			sites: []Site{{Addr: base}, {Addr: base + 4}},
			want:  []string{"guarded window at +0x4 [+0x4: e9000000cc] moves 5 locks 5 guard +0x8=cc for +0x0 +0x4"},
		},
		{
			name: "a handler behind an endbr64", code: "f3 0f 1e fa 48 83 ec 18 c3 90",
			sites: []Site{{Addr: base}, {Addr: base + 4, Trap: true}},
			want: []string{
				"breakpoint at +0x0 [+0x0: cc] moves 4 locks 1 for +0x0",
				"breakpoint at +0x4 [+0x4: cc] moves 4 locks 1 for +0x4",
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code := unhex(t, tt.code)
			f := NewFunc(base, code, len(code), Known{})
			ps, err := Plan(f, tt.sites, around1G, tt.taken)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range ps {
				got = append(got, describe(p, base))
				check(t, f, p)
			}
			if g, w := strings.Join(got, "\n"), strings.Join(tt.want, "\n"); g != w {
				t.Errorf("got\n%s\nwant\n%s", g, w)
			}
			disjoint(t, ps)
		})
	}
}

// disjoint checks that no patch writes what another needs, and that each site
// is served once.
func disjoint(t testing.TB, ps []*Patch) {
	t.Helper()
	served := map[uint64]bool{}
	for i, p := range ps {
		for _, s := range p.AllSites() {
			if served[s] {
				t.Errorf("site %#x is served twice", s)
			}
			served[s] = true
		}
		for _, q := range ps[i+1:] {
			for _, w := range writes(p) {
				if overlaps(w, needs(q)) {
					t.Errorf("the patch at %#x writes into that at %#x", p.At, q.At)
				}
			}
			for _, w := range writes(q) {
				if overlaps(w, needs(p)) {
					t.Errorf("the patch at %#x writes into that at %#x", q.At, p.At)
				}
			}
		}
	}
}

func writes(p *Patch) []Range {
	var out []Range
	for _, w := range p.Writes {
		out = append(out, Range{w.At, w.At + uint64(len(w.Bytes))})
	}
	if p.Island != nil {
		out = append(out, writes(p.Island)...)
	}
	return out
}

// needs are the bytes that must be as the patch wants them, and those that run
// elsewhere.
func needs(p *Patch) []Range {
	out := append(writes(p), Range{p.At, p.Lock})
	if p.Tactic.Jump() {
		out = append(out, Range{p.At, p.End()})
	}
	if p.Island != nil {
		out = append(out, needs(p.Island)...)
	}
	return out
}

func overlaps(r Range, list []Range) bool {
	for _, l := range list {
		if r.Lo < l.Hi && l.Lo < r.Hi {
			return true
		}
	}
	return false
}

// Any set of sites of real functions: every site is served, patches don't
// touch each other.
func TestRandomSetsOfSites(t *testing.T) {
	o := libc(t)
	rnd := rand.New(rand.NewPCG(5, 6))
	space := NewSpace(o.gaps)
	for range 4000 {
		f := o.fn(rnd.IntN(len(o.funcs)))
		all := f.Sites()
		if len(all) == 0 {
			continue
		}
		at := rnd.IntN(len(all))
		var sites []Site
		for _, a := range all[at:min(len(all), at+20)] {
			if rnd.IntN(3) > 0 {
				sites = append(sites, Site{Addr: a, Room: 64 + rnd.IntN(100), Trap: rnd.IntN(12) == 0})
			}
		}
		ps, err := Plan(f, sites, space, nil)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, p := range ps {
			check(t, f, p)
			n += len(p.AllSites())
		}
		if n != len(sites) {
			t.Errorf("%d of %d sites served", n, len(sites))
		}
		disjoint(t, ps)
		if t.Failed() {
			for _, p := range ps {
				t.Log(describe(p, f.start))
			}
			t.Fatalf("%#x: %v", f.start, sites)
		}
	}
}
