package cli

import (
	"os"
	"strings"
	"testing"

	"kprobe/probe"
)

// TestDetachSays: what was left out is said, the first ones by their places, and how to
// go on.
func TestDetachSays(t *testing.T) {
	ev := &probe.Event{Group: "kprobes", Name: "p_work_0"}
	f := &fake{leftOut: []probe.LeftOut{{PID: 1, Event: ev, Why: "it waits"}}}
	for range mostLeftOut {
		f.leftOut = append(f.leftOut, probe.LeftOut{PID: 1, Event: ev, Place: "work+4", Why: "it is a breakpoint"})
	}
	r := kprobe(t, f, "", "trace", "--detach", "-p", "1", "work")
	for _, want := range []string{
		"warning: process 1: kprobes/p_work_0 is left out: it waits\n",
		"warning: process 1: kprobes/p_work_0 at work+4 is left out: it is a breakpoint\n",
		"warning: 1 more place was left out; -v names them all\n",
		"nothing traces process 1; kprobe snapshot -p 1 shows its last hits, kprobe del -p 1 '*' takes the probes out\n",
	} {
		if !strings.Contains(r.err, want) {
			t.Errorf("no %q in\n%s", want, r.err)
		}
	}
	if r.status != 0 || !f.opts.Detach || f.closed != 1 {
		t.Errorf("%+v, closed %d times", r, f.closed)
	}
}

// TestOfFile: an error names the file once.
func TestOfFile(t *testing.T) {
	_, err := os.Open("/no/such/file")
	for want, err := range map[string]error{
		"/no/such/file: no such file or directory":              ofFile("/no/such/file", err),
		"/other: open /no/such/file: no such file or directory": ofFile("/other", err),
		"/other: it holds no hits of detached probes":           ofFile("/other", probe.ErrNoRings),
	} {
		if err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
