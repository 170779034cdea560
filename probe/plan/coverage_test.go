package plan

import (
	"fmt"
	"os"
	"sort"
	"strings"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe/insn"
)

// tally counts tactics, and the reasons of those that trap.
type tally struct {
	n      int
	tactic [Bypass + 1]int
	why    map[string]int
}

func (c *tally) add(p *Patch) {
	c.n++
	c.tactic[p.Tactic]++
	if !p.Tactic.Jump() {
		if c.why == nil {
			c.why = map[string]int{}
		}
		c.why[reason(p.Why)]++
	}
}

// reason is a text without its numbers.
func reason(why string) string {
	var b strings.Builder
	for _, w := range strings.Fields(why) {
		if strings.HasPrefix(w, "+0x") || len(w) == 1 && w[0] >= '0' && w[0] <= '9' {
			w = "N"
		}
		b.WriteString(w + " ")
	}
	return b.String()
}

// jumps is the share of what can be probed at all.
func (c *tally) jumps() float64 {
	trapped := c.tactic[Breakpoint]
	return 100 * float64(c.n-trapped-c.tactic[Refused]) / float64(max(1, c.n-c.tactic[Refused]))
}

func (c *tally) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d, %.3f %% by jump:", c.n, c.jumps())
	for t, n := range c.tactic {
		if n > 0 {
			fmt.Fprintf(&b, " %s %.2f %%,", Tactic(t), 100*float64(n)/float64(c.n))
		}
	}
	type row struct {
		why string
		n   int
	}
	var rows []row
	for w, n := range c.why {
		rows = append(rows, row{w, n})
	}
	sort.Slice(rows, func(i, j int) bool { return rows[i].n > rows[j].n })
	for _, r := range rows[:min(12, len(rows))] {
		fmt.Fprintf(&b, "\n    %6d  %s", r.n, r.why)
	}
	return b.String()
}

// Whole files: every function entry takes a jump, and nearly every
// instruction. Each site is planned as if it were the only one.
func TestCoverage(t *testing.T) {
	full := os.Getenv("KPROBE_TEST_FULL") != ""
	for _, tt := range []struct {
		name  string
		paths []string
		full  bool
		every int // instructions are sampled
	}{
		{"libc", []string{"/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6", "/usr/lib/libc.so.6"}, false, 7},
		{"bash", []string{"/bin/bash"}, false, 11},
		{"libstdc++", []string{"/usr/lib/x86_64-linux-gnu/libstdc++.so.6", "/usr/lib64/libstdc++.so.6", "/usr/lib/libstdc++.so.6"}, false, 11},
		{"python3", []string{"/usr/bin/python3"}, true, 1},
		{"libcrypto", []string{"/usr/lib/x86_64-linux-gnu/libcrypto.so.3", "/usr/lib64/libcrypto.so.3", "/usr/lib/libcrypto.so.3"}, true, 1},
		{"redis-server", []string{"/usr/bin/redis-server"}, true, 1},
		{"node", []string{"/usr/bin/node", "/usr/local/bin/node"}, true, 1},
		{"go", []string{fixture.NeedTool(t, "go")}, false, 41},
	} {
		if tt.full && !full {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			if full {
				tt.every = 1
			}
			o := loadObject(t, fixture.NeedFile(t, tt.paths...))
			var entries, exits, all tally
			count := 0
			for n := range o.funcs {
				f := o.fn(n)
				sites := f.Sites()
				if len(sites) == 0 {
					continue
				}
				for k, at := range sites {
					if count++; k > 0 && count%tt.every != 0 && !f.exit(at) {
						continue
					}
					ps, err := Plan(f, []Site{{Addr: at, Room: 200}}, o.gaps, nil)
					if err != nil {
						t.Fatal(err)
					}
					check(t, f, ps[0])
					if ps[0].Tactic == Breakpoint {
						g := o.around(n)
						if ps, err = Plan(g, []Site{{Addr: at, Room: 200}}, o.gaps, nil); err != nil {
							t.Fatal(err)
						}
						check(t, g, ps[0])
					}
					if k == 0 {
						entries.add(ps[0])
					}
					if f.exit(at) {
						exits.add(ps[0])
					}
					all.add(ps[0])
				}
			}
			t.Logf("entries %v", &entries)
			t.Logf("exits %v", &exits)
			t.Logf("instructions %v", &all)
			want := 99.0
			if !o.pie {
				want = 96
			}
			if entries.jumps() < 99.8 { // pieces of functions, of one byte, count as entries too
				t.Errorf("only %.3f %% of the function entries", entries.jumps())
			}
			if exits.jumps() < want {
				t.Errorf("only %.3f %% of the exits", exits.jumps())
			}
			if all.jumps() < want {
				t.Errorf("only %.3f %% of the instructions", all.jumps())
			}
		})
	}
}

// exit reports whether a function is left at an address: by a return, or by a
// direct jump to another.
func (f *Func) exit(at uint64) bool {
	i, code := f.whole(f.insts[f.index(at)])
	to, ok := i.Target(at, code)
	return i.Is(insn.Ret) || ok && i.Is(insn.Jmp) && to-f.start >= uint64(f.size)
}
