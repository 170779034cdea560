package plan

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

const base = 0x555555555000

// around1G are free addresses on both sides of base.
var around1G = Gaps{{base - 1<<30, base - 1<<20}, {base + 1<<20, base + 1<<30}}

// unhex takes bytes written as hex with spaces.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// describe is a patch in one line, addresses relative to the function.
func describe(p *Patch, start uint64) string {
	rel := func(a uint64) string { return fmt.Sprintf("+%#x", a-start) }
	var b strings.Builder
	fmt.Fprintf(&b, "%v at %s", p.Tactic, rel(p.At))
	for _, w := range p.Writes {
		fmt.Fprintf(&b, " [%s: %x]", rel(w.At), w.Bytes)
	}
	fmt.Fprintf(&b, " moves %d", len(p.Displaced))
	if p.Lock != p.At {
		fmt.Fprintf(&b, " locks %d", p.Lock-p.At)
	}
	for _, g := range p.Guards {
		fmt.Fprintf(&b, " guard %s=%02x", rel(g.At), g.Byte)
	}
	var sites []string
	for _, s := range p.Sites {
		sites = append(sites, rel(s))
	}
	fmt.Fprintf(&b, " for %s", strings.Join(sites, " "))
	if p.Island != nil {
		fmt.Fprintf(&b, " over %s", describe(p.Island, start))
	}
	return b.String()
}

func TestTactics(t *testing.T) {
	const nops = "90 90 90 90 90 90 90 90"
	for _, tt := range []struct {
		name  string
		code  string // of the function
		after string // what follows
		next  int    // where the next function starts, from the end
		at    uint64
		gaps  Gaps
		known []uint64 // targets from outside
		want  string
		why   string // part of the reason
	}{
		{
			name: "no-op pad", code: "0f 1f 44 00 00 c3",
			want: "no-op pad at +0x0 [+0x0: e9fbff0f00] moves 5 locks 5 for +0x0",
		},
		{
			name: "one long instruction", code: "48 81 ec 00 01 00 00 c3",
			want: "single instruction at +0x0 [+0x0: e9fbff0f00] moves 7 locks 5 for +0x0",
		},
		{
			name: "behind an endbr64", code: "f3 0f 1e fa b8 01 00 00 00 c3",
			want: "single instruction at +0x4 [+0x4: e9f7ff0f00] moves 5 locks 5 for +0x0",
		},
		{
			name: "an endbr64 whose successor is a loop's head", code: "f3 0f 1e fa b8 01 00 00 00 eb f9",
			want: "punned jump at +0x0 [+0x0: 48e90000] moves 4 locks 6 for +0x0",
		},
		{
			name: "window with two boundaries", code: "55 48 89 e5 53 c3", at: 0, after: nops,
			want: "guarded window at +0x0 [+0x0: e9cc0000cc] moves 5 locks 5 guard +0x1=cc guard +0x4=cc for +0x0",
		},
		{
			name: "a call at the window's end", code: "53 e8 00 00 00 00 5b c3",
			want: "guarded window at +0x0 [+0x0: e9cc001000] moves 6 locks 6 guard +0x1=cc for +0x0",
		},
		{
			name: "a call in the middle", code: "ff d0 48 89 c3 5b c3", after: nops,
			want: "punned jump at +0x0 [+0x0: e900] moves 2 locks 5 for +0x0", why: "the call at +0x0 would return into the jump",
		},
		{
			name: "a branch under the jump", code: "31 c0 ff c0 eb fc c3", after: nops,
			want: "punned jump at +0x0 [+0x0: e900] moves 2 locks 5 for +0x0", why: "a branch leads to bytes under the jump, at +0x2",
		},
		{
			name: "a branch into a long instruction", code: "f0 48 0f b1 0d 00 10 00 00 75 f6 c3", after: nops,
			want: "breakpoint at +0x0 [+0x0: cc] moves 9 locks 1 for +0x0", why: "a branch leads into the instruction, to +0x1",
		},
		{
			name: "a system call", code: "b8 27 00 00 00 0f 05 c3", at: 5,
			want: "refused at +0x5 moves 2 for +0x5", why: "a system call",
		},
		{
			name: "a system call in the window", code: "31 c0 0f 05 c3", after: nops,
			want: "punned jump at +0x0 [+0x0: e900] moves 2 locks 5 for +0x0", why: "the instruction at +0x2 can't be moved",
		},
		{
			name: "tail and padding", code: "31 c0 c3", after: "66 90 cc cc", next: 4,
			gaps: Gaps{{base + 1<<20, base + 1<<21}},
			want: "tail and padding at +0x0 [+0x0: e900cc1000] moves 3 locks 5 guard +0x2=cc for +0x0",
		},
		{
			name: "an endbr64 behind a return", code: "31 c0 c3 f3 0f 1e fa 31 c0 c3", at: 2,
			gaps: Gaps{{base + 1<<20, base + 1<<21}},
			want: "breakpoint at +0x2 [+0x2: cc] moves 1 locks 1 for +0x2",
		},
		{
			name: "an endbr64 behind the function", code: "31 c0 c3", at: 2, after: "f3 0f 1e fa cc cc",
			gaps: Gaps{{base + 1<<20, base + 1<<21}},
			want: "breakpoint at +0x2 [+0x2: cc] moves 1 locks 1 for +0x2",
		},
		{
			name: "no-ops to which a jump through a register may lead", code: "ff e0 c3 0f 1f 80 00 00 00 00 31 c0 c3", at: 2,
			gaps: Gaps{{base + 1<<20, base + 1<<21}},
			want: "guarded window at +0x2 [+0x2: e9cc001000] moves 8 locks 8 guard +0x3=cc for +0x2", why: "no free address that the following bytes lead to",
		},
		{
			name: "no-ops to which a branch leads behind a jump through a register", code: "ff e0 c3 0f 1f 80 00 00 00 00 eb f7 c3", at: 2,
			gaps: Gaps{{base + 1<<20, base + 1<<21}},
			want: "breakpoint at +0x2 [+0x2: cc] moves 1 locks 1 for +0x2", why: "a branch leads to bytes under the jump",
		},
		{
			name: "padding that belongs to somebody", code: "31 c0 c3", after: "66 90 cc cc", next: 0,
			gaps: Gaps{{base + 1<<20, base + 1<<21}},
			want: "breakpoint at +0x0 [+0x0: cc] moves 2 locks 1 for +0x0", why: "no padding",
		},
		{
			name: "short jump", code: "31 c0 ff c0 eb fc", after: nops, next: 8,
			gaps: Gaps{{base + 1<<20, base + 1<<21}},
			want: "short jump at +0x0 [+0x6: e9f5ff0f00] [+0x0: eb04] moves 2 locks 2 for +0x0",
		},
		{
			name: "short jump right behind its long jump", code: "eb 05 90 90 90 90 90 31 c0 ff c0 eb fc", at: 7,
			gaps: Gaps{{base + 1<<20, base + 1<<21}},
			want: "short jump at +0x7 [+0x2: e9f9ff0f00] [+0x7: ebf9] moves 2 locks 2 for +0x7",
		},
		{
			name: "back from a return", code: "48 83 c4 08 5b c3", at: 5,
			want: "guarded window at +0x0 [+0x0: e9000000cccc] moves 6 locks 6 guard +0x4=cc guard +0x5=cc for +0x5",
		},
		{
			// Nothing is known to lead to the return, but what does is a hit.
			name: "back from a return behind a long instruction", code: "48 8b 05 00 10 00 00 c3", after: "48 89 c3 c3", at: 7,
			gaps: Gaps{{base + 1<<20, base + 1<<21}},
			want: "guarded window at +0x0 [+0x0: e9fbff0f000000cc] moves 8 locks 8 guard +0x7=cc for +0x7",
		},
		{
			name: "a return whose bytes behind give way", code: "31 c0 74 00 c3 b8 01 02 33 04 eb f9", known: []uint64{base + 5}, at: 4,
			gaps: Gaps{{base + 1<<20, base + 1<<26}},
			want: "punned jump at +0x4 [+0x4: e9] moves 1 locks 5 for +0x4 over guarded window at +0x5 [+0x5: e900100001] moves 5 locks 5 for ",
		},
		{
			name: "and of the instruction before it", code: "5b c3 b8 01 02 03 04 eb f9", known: []uint64{base, base + 2}, after: "48 89 c3 c3", at: 1,
			gaps: Gaps{{base + 7 + 0x100, base + 7 + 0x300}, {base + 5 + 0x100e9cc, base + 5 + 0x100e9dc}},
			want: "guarded window at +0x0 [+0x0: e9cc] moves 2 locks 5 guard +0x1=cc for +0x1 over guarded window at +0x2 [+0x2: e900010000] moves 5 locks 5 for ",
		},
		{
			name: "and of the padding between", code: "c3 90 b8 01 00 00 00 eb f9", known: []uint64{base + 2}, after: "48 89 c3 c3",
			want: "tail and padding at +0x0 [+0x0: e900] moves 1 locks 5 for +0x0 over guarded window at +0x2 [+0x2: e910001000] moves 5 locks 5 for ",
		},
		{
			// What nothing leads to may be data.
			name: "nothing that is known to be code gives way", code: "c3 b8 01 00 00 00 eb f9", after: "48 89 c3 c3",
			gaps: Gaps{{base + 1<<20, base + 1<<21}},
			want: "breakpoint at +0x0 [+0x0: cc] moves 1 locks 1 for +0x0", why: "the instructions after it can't give way",
		},
		{
			name: "nor what a branch leads into", code: "c3 b8 01 00 00 00 eb f9", known: []uint64{base + 1, base + 3}, after: "48 89 c3 c3",
			gaps: Gaps{{base + 1<<20, base + 1<<21}},
			want: "breakpoint at +0x0 [+0x0: cc] moves 1 locks 1 for +0x0", why: "the instructions after it can't give way",
		},
		{
			// The return, the two bytes of padding that are nobody's, and the instruction before.
			name: "back from a return into the padding", code: "31 c0 c3", after: "66 90 cc cc", next: 2, at: 2,
			gaps: Gaps{{base + 1<<20, base + 1<<21}},
			want: "tail and padding at +0x0 [+0x0: e900cc1000] moves 3 locks 5 guard +0x2=cc for +0x2",
		},
		{
			name: "nowhere to go", code: "48 81 ec 00 01 00 00 c3", gaps: Gaps{},
			want: "breakpoint at +0x0 [+0x0: cc] moves 7 locks 1 for +0x0", why: "no free address within 2 GiB",
		},
		{
			// 31 c0 is followed by a loop's head; the 7 + 5 bytes behind give way.
			name: "short jump into an island", code: "31 c0 ff c0 eb fc 48 8d 80 00 10 00 00 b9 01 00 00 00 5b c3", known: []uint64{base + 6},
			gaps: Gaps{{base + 1<<20, base + 1<<21}},
			want: "short jump at +0x0 [+0x0: eb09] moves 2 locks 2 for +0x0 over guarded window at +0x6 [+0x6: e9f5ff0f00e900cc1000] moves 12 locks 12 guard +0xd=cc for ",
		},
		{
			// A branch leads to the pop before the return: both are moved.
			name: "short jump from before a return", code: "74 09 eb 07 90 90 90 90 90 90 90 41 5c c3", after: "48 89 c3 c3", at: 13,
			gaps: Gaps{{base + 1<<20, base + 1<<21}},
			want: "short jump at +0xb [+0x4: e9f7ff0f00] [+0xb: ebf7] moves 3 locks 2 for +0xd",
		},
		{
			// c3 0c: a short jump to +0xe, in the no-ops.
			name: "short jump whose displacement is what follows",
			code: "c3 0c 01 74 fc b0 01 c3 90 90 90 90 90 90 90 90 90 90 90 90 c3",
			gaps: Gaps{{base + 1<<20, base + 1<<21}},
			want: "short jump at +0x0 [+0xe: e9edff0f00] [+0x0: eb] moves 1 locks 2 for +0x0",
		},
		{
			// c3, two bytes of padding, and a branch's target on both sides.
			name: "short jump whose displacement is in the padding",
			code: "48 8d 80 00 10 00 00 b9 01 00 00 00 74 03 c3 66 90 5b c3", known: []uint64{base + 14}, at: 14,
			gaps: Gaps{{base + 1<<20, base + 1<<21}},
			want: "short jump at +0xe [+0xe: ebf5] moves 1 locks 2 for +0xe over guarded window at +0x0 [+0x0: e9fbff0f00e900cc1000] moves 12 locks 12 guard +0x7=cc for ",
		},
		{
			name: "a target known from outside", code: "53 48 89 fb 48 89 de c3", known: []uint64{base + 1}, after: nops,
			gaps: Gaps{{base + 1<<20, base + 1<<21}},
			want: "breakpoint at +0x0 [+0x0: cc] moves 1 locks 1 for +0x0", why: "a branch leads to bytes under the jump, at +0x1",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code := unhex(t, tt.code)
			f := NewFunc(base, append(code, unhex(t, tt.after)...), len(code), Known{
				Target: func(a uint64) bool { return slices.Contains(tt.known, a) },
				Next:   len(code) + tt.next,
			})
			gaps := tt.gaps
			if gaps == nil {
				gaps = around1G
			}
			ps, err := Plan(f, []Site{{Addr: base + tt.at}}, gaps, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := describe(ps[0], base); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if !strings.Contains(ps[0].Why, tt.why) {
				t.Errorf("why: %q, want %q in it", ps[0].Why, tt.why)
			}
			check(t, f, ps[0])
		})
	}
}

func TestNotBoundary(t *testing.T) {
	f := NewFunc(base, unhex(t, "b8 01 00 00 00 c3"), 6, Known{})
	for _, at := range []uint64{base + 1, base + 6, base - 1, 0} {
		if _, err := Plan(f, []Site{{Addr: at}}, around1G, nil); !errors.Is(err, ErrNotBoundary) {
			t.Errorf("%#x: %v", at, err)
		}
	}
}
