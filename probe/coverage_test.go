package probe

import (
	"os"
	"strings"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe/assess"
	"kprobe/symbols"
)

// share counts the instructions that can be probed, and those of them by a jump.
type share struct {
	jumps, all int
	why        map[string]int // of the breakpoints, without numbers
}

func (s *share) add(l *Line) {
	if l.Probe == KindRefused {
		return
	}
	s.all++
	if l.Tactic.Jump() {
		s.jumps++
		return
	}
	if s.why == nil {
		s.why = map[string]int{}
	}
	why, _, _ := strings.Cut(l.Why, " +0x")
	s.why[why]++
}

func (s *share) percent() float64 { return 100 * float64(s.jumps) / float64(max(1, s.all)) }

// TestCoverage counts over whole files what kprobe show lists: by a jump are
// probed nearly all functions' entries, their returns, and their instructions.
// What isn't has a reason.
func TestCoverage(t *testing.T) {
	full := os.Getenv("KPROBE_TEST_FULL") != ""
	for _, c := range []struct {
		name                   string
		paths                  []string
		full                   bool
		entries, returns, insn float64
	}{
		{"bash", []string{"/bin/bash"}, false, 100, 99.9, 99.9},
		{"libc", []string{"/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6", "/usr/lib/libc.so.6"}, false, 99.9, 99.9, 99.9},
		{"libstdc++", []string{"/usr/lib/x86_64-linux-gnu/libstdc++.so.6", "/usr/lib64/libstdc++.so.6", "/usr/lib/libstdc++.so.6"}, true, 100, 99.9, 99.9},
		{"libcrypto", []string{"/usr/lib/x86_64-linux-gnu/libcrypto.so.3", "/usr/lib64/libcrypto.so.3", "/usr/lib/libcrypto.so.3"}, true, 100, 99.9, 99.9},
		{"redis-server", []string{"/usr/bin/redis-server"}, true, 100, 99.9, 99.9},
		{"python3", []string{"/usr/bin/python3"}, true, 99.9, 99.9, 99.9},
		{"node", []string{"/usr/bin/node", "/usr/local/bin/node"}, true, 99.9, 99.9, 99.9},
		// Some assembly keeps every register.
		{"go", []string{fixture.NeedTool(t, "go")}, true, 99.8, 99.8, 99.6},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.full && !full {
				return
			}
			space, err := symbols.OpenFileSpace(fixture.NeedFile(t, c.paths...))
			if err != nil {
				t.Fatal(err)
			}
			sites, err := space.Resolve(symbols.Place{Symbol: "*"})
			if err != nil {
				t.Fatal(err)
			}
			j, err := assess.NewJudge(space, sites)
			if err != nil {
				t.Fatal(err)
			}
			var entries, returns, all share
			for _, w := range sites {
				l, err := j.Inspect(w)
				if err != nil {
					continue // what can't be taken apart is left out by show, too
				}
				for i := range l.Lines {
					line := &l.Lines[i]
					if !line.Tactic.Jump() && line.Why == "" {
						t.Errorf("%s+%#x: no reason", l.Name, line.Offset)
					}
					all.add(line)
					if line.Offset == 0 {
						entries.add(line)
					}
					if strings.HasPrefix(line.Text, "ret") {
						returns.add(line)
					}
				}
			}
			for _, s := range []struct {
				what string
				share
				least float64
			}{{"entries", entries, c.entries}, {"returns", returns, c.returns}, {"instructions", all, c.insn}} {
				t.Logf("%s: %d of %d, %.3f %%; breakpoints: %v", s.what, s.jumps, s.all, s.percent(), s.why)
				if s.percent() < s.least {
					t.Errorf("only %.3f %% of the %s, want %v %%", s.percent(), s.what, s.least)
				}
			}
		})
	}
}
