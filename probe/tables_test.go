package probe

import (
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// TestTables: a function that ends in a jump through a table of functions has all its returns seen, whatever the table
// is and however its entries are found, and so has one with switches or computed gotos.
func TestTables(t *testing.T) {
	forms := strings.Fields("tail_filled tail_here tail_initialized tail_fixed tail_behind tail_bounded tail_twos tail_threes tail_fours " +
		"tail_filled_twos tail_filled_threes tail_frame tail_either tail_local switch_leaf switch_calls switch_apart goto_leaf goto_frame goto_then_tail")
	const rounds, calls = "25", 25 * 8
	for _, flags := range []string{
		"-O2 -pie", "-O2 -fno-pie -no-pie", "-Os -pie",
		// With an unwinder mapped, returns are seen where functions are left.
		"-O2 -pie -lgcc_s", "-O2 -fno-pie -no-pie -lgcc_s", "-O2 -pie -fno-asynchronous-unwind-tables -lgcc_s",
	} {
		t.Run(flags, func(t *testing.T) {
			prog := fixture.Build(t, "probe_tables.c", append(strings.Fields(flags), "-Wl,--no-as-needed")...)
			want := plain(t, prog, rounds)
			for _, more := range []string{"", "r:others probe_tables:*"} {
				var defs []string
				for _, name := range forms {
					defs = append(defs, "r:"+name+" "+name)
				}
				if more != "" {
					defs = append(defs, more)
				}
				sub := startSubject(t, prog, rounds)
				l := engageInto(t, sub.pid(), Options{CountOnly: true}, nil, defs...)
				if got := sub.work(); got != want {
					t.Errorf("with %q: the program printed %q, otherwise %q", more, got, want)
				}
				l.finish(sub.pid())
				sub.end()
				for _, name := range forms {
					if st := l.stat(name); st.Hits != calls || st.Missed != 0 {
						t.Errorf("with %q: %s: %+v, want %d hits", more, name, st, calls)
					}
				}
			}
		})
	}
}
