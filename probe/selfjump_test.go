package probe

import (
	"strconv"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// TestSelfJump: a function that jumps to its own entry is in the same call. If it is jumped to through a pointer, also one of
// its own, or comes back by another function, that is a further call: each is a hit or is missed. None of those that longjmp has left is a hit.
func TestSelfJump(t *testing.T) {
	prog := fixture.Build(t, "probe_selfjump.c", "-O2", "-fcf-protection=none", "-Wl,--no-as-needed", "-lgcc_s")
	want := plain(t, prog, "20")
	names := map[string]string{"a": "one", "e": "ends", "s": "again", "t": "more", "d": "turns"}
	var few []string
	for _, name := range names {
		few = append(few, "r:"+name+" "+name)
	}
	many := append(few[:len(few):len(few)], "r:z probe_selfjump:z_*")
	for _, c := range []struct {
		name string
		o    Options
		defs []string
		more string // what the definitions record besides
	}{
		{"few", Options{CountOnly: true}, few, ""},
		{"many", Options{CountOnly: true}, many, ""},
		{"few, recorded", Options{}, few, " v=$retval x=$arg2"},
		{"many, recorded", Options{}, many, " v=$retval x=$arg2"},
		{"twice", Options{CountOnly: true}, append(many[:len(many):len(many)], "r:twin again"), ""},
		{"few numbers", Options{CountOnly: true, Active: 5}, few, ""},
		{"few numbers, recorded", Options{Active: 5}, few, " v=$retval x=$arg2"},
		{"breakpoints", Options{CountOnly: true, NoOptimize: true}, few, ""},
	} {
		var defs []string
		for _, d := range c.defs {
			defs = append(defs, d+c.more)
		}
		sub := startSubject(t, prog, "20")
		l, _ := engage(t, sub.pid(), c.o, defs...)
		if got := sub.work(); got != want {
			t.Errorf("%s: probed, the program printed %q, otherwise %q", c.name, got, want)
		}
		l.finish(sub.pid())
		sub.end()
		for _, x := range strings.Fields(want)[1:] {
			letter, count, _ := strings.Cut(x, "=")
			n, _ := strconv.ParseUint(count, 10, 64)
			probed := []string{names[letter]}
			if letter == "s" && c.name == "twice" {
				probed = append(probed, "twin")
			}
			for _, name := range probed {
				if st := l.stat(name); st.Hits+st.Missed != n || c.more == "" && c.o.Active == 0 && st.Missed != 0 {
					t.Errorf("%s: %s: %d hits, %d missed of %d calls", c.name, name, st.Hits, st.Missed, n)
				}
			}
		}
	}
}
