package probe

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"

	"kprobe/internal/fixture"
)

// TestExceptionsOfUnwinder: with return probes on all functions of the unwinder, and on those that throw and
// catch, an exception costs no stop, and each of their returns is counted once. What throws never returns.
func TestExceptionsOfUnwinder(t *testing.T) {
	prog := fixture.Build(t, "probe_throw.cc", "-O2")
	const calls = 9000
	args := []string{fmt.Sprint(calls)}
	want := plain(t, prog, args...)
	returns := map[string]uint64{
		"libstdc++:__cxa_begin_catch": calls / 3, "libstdc++:__cxa_end_catch": calls / 3, "libstdc++:__cxa_allocate_exception": calls / 3,
		"libstdc++:__cxa_free_exception": calls / 3, "libstdc++:__cxa_throw": 0, "libgcc_s:_Unwind_RaiseException": 0,
		"libgcc_s:_Unwind_Resume": 0, "libgcc_s:_Unwind_DeleteException": calls / 3,
	}
	for _, all := range []bool{false, true} {
		sub := startSubject(t, prog, args...)
		var defs []string
		event := func(i int) string { return fmt.Sprint("own", i) }
		var places []string
		for place := range returns {
			defs = append(defs, fmt.Sprintf("r:%s %s", event(len(places)), place))
			places = append(places, place)
		}
		if all {
			defs = append(defs, "r:all libgcc_s:*")
		}
		l, _ := engage(t, sub.pid(), Options{CountOnly: true}, defs...)
		if _, why := optimizedOf(l, "all"); why != "" {
			t.Errorf("a function of the unwinder is no jump: %s", why)
		}
		before := waitsOf(t, sub.pid())
		if got := sub.work(); got != want {
			t.Errorf("probed, the program printed %q, otherwise %q", got, want)
		}
		if n := waitsOf(t, sub.pid()) - before; n > calls/30 {
			t.Errorf("the thread has waited %d times", n)
		}
		l.finish(sub.pid())
		sub.end()
		for i, place := range places {
			if st := l.stat(event(i)); st.Hits != returns[place] || st.Missed != 0 {
				t.Errorf("%s: %+v, want %d hits", place, st, returns[place])
			}
		}
	}
}

// waitsOf is how often a process's first thread has waited, as it does when it is stopped.
func waitsOf(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`\nvoluntary_ctxt_switches:\s*(\d+)`).FindSubmatch(b)
	if m == nil {
		t.Fatalf("no count of waits in %s", b)
	}
	n, _ := strconv.Atoi(string(m[1]))
	return n
}
