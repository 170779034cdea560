package probe

import (
	"fmt"
	"testing"

	"kprobe/internal/fixture"
)

// TestExitsPushed: functions whose return instructions go to addresses that they have put on the stack. Their calls return
// elsewhere, and each is seen once, with its value, with and without an unwinder in the process. A function that puts its own return
// address back returns as others do.
func TestExitsPushed(t *testing.T) {
	const rounds = 300
	names := []string{"by_push", "by_memory", "by_store", "by_retpoline", "inline_retpoline", "thunk_r11", "jumps_to_thunk", "puts_back", "balanced"}
	for _, unwinder := range []bool{false, true} {
		flags := []string{"-O2"}
		if unwinder {
			flags = append(flags, "-Wl,--no-as-needed", "-lgcc_s")
		}
		prog := fixture.Build(t, "exits_pushed.c", flags...)
		for _, o := range []Options{{}, {CountOnly: true}, {NoOptimize: true}} {
			t.Run(fmt.Sprintf("unwinder %v, optimize %v, counts %v", unwinder, !o.NoOptimize, o.CountOnly), func(t *testing.T) {
				want := plain(t, prog, fmt.Sprint(rounds))
				sub := startSubject(t, prog, fmt.Sprint(rounds))
				sink := &returned{n: map[string]uint64{}}
				values := " v=$retval x=$arg1"
				if o.CountOnly {
					values = ""
				}
				var defs []string
				for _, name := range names {
					defs = append(defs, "r:"+name+" "+name+values)
				}
				l := engageInto(t, sub.pid(), o, sink, defs...)
				if got := sub.work(); got != want {
					t.Errorf("probed, the program printed %q, otherwise %q", got, want)
				}
				for _, name := range []string{"puts_back", "balanced"} {
					if n, why := optimizedOf(l, name); (n == 1) == o.NoOptimize {
						t.Errorf("%s: %d places by a jump, %s", name, n, why)
					}
				}
				l.finish(sub.pid())
				sub.end()
				for _, name := range names {
					if st := l.stat(name); st.Hits != rounds || st.Missed != 0 || !o.CountOnly && sink.n[name]+st.Lost != rounds {
						t.Errorf("%s: %+v, %d records, want %d", name, st, sink.n[name], rounds)
					}
				}
				if sink.bad != 0 {
					t.Errorf("%d returns with a wrong value", sink.bad)
				}
			})
		}
	}
}
