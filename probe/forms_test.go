package probe

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kprobe/probe/engine"
)

// TestFormsByJump: what takes a clock, a symbol table or the kernel at the hit is
// a jump too, and prints what a breakpoint prints.
func TestFormsByJump(t *testing.T) {
	prog := callsFixture(t)
	now := engine.NewClock().Now
	start, never := now(), now()+1<<50
	defs := []string{
		"p:names tail_b n=$arg1 here=%ip:symstr nowhere=\\5:symstr at=+0(%sp):symstr bad=@0:symstr",
		"p:paths tail_b n=$arg1 in=\\0:%pd none=\\999:%pD a=\\0:%pD",
		`p:inpath tail_b n=$arg1 in=\0:%pd if in ~ "pip*" && in != "pipe:[0]"`,
		fmt.Sprintf("p:after tail_b n=$arg1 t=$time low=$time:u32 b=$time:b8@8/64 if t > %d && t < %d", start, never),
		fmt.Sprintf("p:before tail_b n=$arg1 t=$time if t <= %d", start),
		fmt.Sprintf("r:call tail_b n=$arg1 t=$time e=$entrytime low=$entrytime:u32 if e > %d && t > %d && low >= 0", start, start),
		fmt.Sprintf("r:late tail_b n=$arg1 e=$entrytime if e > %d", never),
		"r:plain tail_b n=$arg1 t=$time e=$entrytime",
	}
	times := regexp.MustCompile(` (t|e|low|b)=[0-9]+`)
	var seen []string
	for _, o := range []Options{{}, {NoOptimize: true}} {
		t.Run(fmt.Sprintf("optimize %v", !o.NoOptimize), func(t *testing.T) {
			sub := startSubject(t, prog, "tail", "20")
			in, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/0", sub.pid()))
			if err != nil {
				t.Fatal(err)
			}
			l := attach(t, sub.pid(), o, defs...)
			for _, name := range []string{"names", "paths", "inpath", "after", "before", "call", "late", "plain"} {
				if n, why := optimizedOf(l, name); (n == 1) == o.NoOptimize {
					t.Errorf("%s: %d places by a jump: %s", name, n, why)
				}
			}
			sub.work()
			l.finish(sub.pid())
			sub.end()
			end := now()
			for name, filtered := range map[string]uint64{"names": 0, "paths": 0, "inpath": 0, "after": 0, "before": 20, "call": 0, "late": 20, "plain": 0} {
				if st := l.stat(name); st.Hits != 20 || st.Filtered != filtered {
					t.Errorf("%s: %d hits, %d filtered", name, st.Hits, st.Filtered)
				}
			}
			var lines []string
			for _, line := range l.sink.all() {
				name, _, _ := strings.Cut(line, " ")
				v := map[string]uint64{}
				for _, f := range times.FindAllString(line, -1) {
					var n uint64
					k, number, _ := strings.Cut(strings.TrimSpace(f), "=")
					if _, err := fmt.Sscan(number, &n); err != nil {
						t.Fatal(err)
					}
					v[k] = n
				}
				switch {
				case name == "after" && (v["low"] != v["t"]&0xffffffff || v["b"] != v["t"]>>8&0xff || v["t"] < start || v["t"] > end):
					t.Errorf("%s: from %d to %d", line, start, end)
				case name == "call" && (v["low"] != v["e"]&0xffffffff || v["e"] < start || v["e"] > v["t"] || v["t"] > end):
					t.Errorf("%s: from %d to %d", line, start, end)
				case name == "plain" && (v["e"] < start || v["e"] > v["t"] || v["t"] > end):
					t.Errorf("%s: from %d to %d", line, start, end)
				}
				lines = append(lines, strings.ReplaceAll(times.ReplaceAllString(line, ""), in, "STDIN"))
			}
			slices.Sort(lines)
			if len(lines) == 0 || !strings.Contains(strings.Join(lines, "\n"), `in="STDIN" none=(fault) a="STDIN"`) ||
				!strings.Contains(strings.Join(lines, "\n"), `here="tail_b+0x0/`) || !strings.Contains(strings.Join(lines, "\n"), `nowhere="0x5"`) {
				t.Errorf("%s", strings.Join(lines, "\n"))
			}
			if seen == nil {
				seen = lines
			} else if !slices.Equal(seen, lines) {
				t.Errorf("by jumps\n%s\nby breakpoints\n%s", strings.Join(seen, "\n"), strings.Join(lines, "\n"))
			}
		})
	}
}
