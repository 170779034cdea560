package cli

import (
	"os"
	"slices"
	"strconv"
	"testing"
)

// What del -p has taken out of a trace is put in again by the definition that is still kept, once. While
// it is there, or given twice, it is an error as without a trace.
func TestAddAgain(t *testing.T) {
	s := newStore(t)
	l := live("web/other")
	f := &fake{lives: map[int]*fakeLive{os.Getpid(): l}}
	pid := strconv.Itoa(os.Getpid())
	const def, same = "p:web/a libc:read n=$arg1:s32", "already the exact same probe event"
	for i, step := range []struct {
		args   []string
		status int
		say    string
		want   []string // of the trace
	}{
		{[]string{"add", "-p", pid, def}, 0, "", []string{"other", "a"}},
		{[]string{"add", "-p", pid, def}, 1, same, []string{"other", "a"}},
		{[]string{"del", "-p", pid, "web/a"}, 0, "", []string{"other"}},
		{[]string{"add", "-p", pid, def, def}, 1, same, []string{"other"}},
		{[]string{"add", def}, 1, same, []string{"other"}},
		{[]string{"add", "-p", pid, "p:web/a libc:read m=$arg2:s32"}, 1, "is different from existing probe", []string{"other"}},
		{[]string{"add", "-p", pid, def}, 0, "", []string{"other", "a"}},
		{[]string{"del", "-p", pid, "web/a"}, 0, "", []string{"other"}},
		{[]string{"add", "-p", pid, "-:web/a", def}, 0, "", []string{"other", "a"}},
	} {
		s.run(f, "", step.status, step.say, step.args...)
		var got []string
		for _, p := range l.probes {
			got = append(got, p.Event)
		}
		if !slices.Equal(got, step.want) {
			t.Errorf("step %d, %q: the trace has %q, want %q", i, step.args, got, step.want)
		}
		if kept := s.ok("list"); kept != "p:web/a libc:read n=$arg1:s32\n" {
			t.Errorf("step %d, %q: kept is %q", i, step.args, kept)
		}
	}
}

// Deleted probes whose places are not free yet are named with the reason, unless the same command adds others: it tries
// again, and fails if it can't.
func TestDeletedPending(t *testing.T) {
	s := newStore(t)
	pid := strconv.Itoa(os.Getpid())
	said := "process " + pid + ": the deleted probes take no hits any more, but nothing else can be probed at their places yet: thread 7 may still run in their code; the next change of its probes tries again"
	for _, c := range []struct {
		pending []string
		args    []string
		want    string // that is said
	}{
		{nil, []string{"del", "-p", pid, "web/a"}, ""},
		{[]string{"thread 7 may still run in their code"}, []string{"del", "-p", pid, "web/a"}, said},
		{[]string{"thread 7 may still run in their code"}, []string{"add", "-p", pid, "-:web/a"}, said},
		{[]string{"thread 7 may still run in their code"}, []string{"add", "-p", pid, "-:web/a", "p:web/b libc:read"}, ""},
	} {
		l := live("web/a", "web/other")
		l.pending = c.pending
		f := &fake{lives: map[int]*fakeLive{os.Getpid(): l}}
		s.run(f, "", 0, c.want, c.args...)
	}
}

// What another command deletes first is an error only if nothing is left of what a pattern names.
func TestDeletedByAnother(t *testing.T) {
	s := newStore(t)
	pid := strconv.Itoa(os.Getpid())
	said := func(p string) string {
		return "no event of the trace matches " + p + " any more: another command has deleted it, or the process has executed another program"
	}
	for _, c := range []struct {
		taken  []string
		args   []string
		status int
		want   string // that is said
	}{
		{nil, []string{"web/a"}, 0, ""},
		{[]string{"web/a"}, []string{"web/a"}, 1, said("web/a")},
		{[]string{"web/a"}, []string{"web/*"}, 0, ""},
		{[]string{"web/a", "web/b"}, []string{"web/*"}, 1, said("web/*")},
		{[]string{"web/a"}, []string{"web/b", "a"}, 1, said("a")},
	} {
		l := live("web/a", "web/b")
		l.taken = c.taken
		f := &fake{lives: map[int]*fakeLive{os.Getpid(): l}}
		s.run(f, "", c.status, c.want, append([]string{"del", "-p", pid}, c.args...)...)
		if c.want == said("a") && len(l.probes) > 0 {
			t.Errorf("%q: %+v is still there", c.args, l.probes)
		}
	}
}
