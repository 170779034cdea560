package cli

import "testing"

// TestUnknownFlags: a flag that a command doesn't have, or that lacks its value, is answered by
// its name as it was written, and with what may be meant.
func TestUnknownFlags(t *testing.T) {
	s := newStore(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"trace", "--duraton", "1s"}, "trace has no flag --duraton; did you mean --duration?"},
		{[]string{"trace", "--metrics", ":9464"}, "trace has no flag --metrics; a flag of this name belongs to profile"},
		{[]string{"trace", "-e", "f"}, "trace has no flag -e"},
		{[]string{"trace", "f", "-p"}, "-p needs a value: -p PID"},
		{[]string{"trace", "--duration"}, "--duration needs a value: --duration TIME"},
		{[]string{"--foo"}, "kprobe has no flag --foo"},
		{[]string{"version"}, "no command version; kprobe --version prints the version"},
		{[]string{"graph", "-p", "1"}, "name a place, such as libc:openat, or a file of definitions with -F; no definitions are kept"},
	} {
		s.run(&fake{}, "", 2, c.want, c.args...)
	}
}
