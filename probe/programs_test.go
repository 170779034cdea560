package probe

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"kprobe/internal/fixture"
)

const pythonScript = `
import os, sys, threading
print("ready", flush=True)
sys.stdin.readline()
sums = [0] * 8
def run(i):
    for n in range(250):
        sums[i] += os.getppid() == os.getppid()
        sums[i] += len("%d %s" % (n, "x" * (n % 7)))
threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
for t in threads: t.start()
for t in threads: t.join()
print("done", sum(sums), flush=True)
sys.stdin.readline()
sys.exit(7)
`

// TestPython probes the interpreter and libc while eight threads run: its
// output is the same, and each of the calls is counted once.
func TestPython(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script.py")
	if err := os.WriteFile(script, []byte(pythonScript), 0o600); err != nil {
		t.Fatal(err)
	}
	python := fixture.NeedFile(t, "/usr/bin/python3")
	want := plain(t, python, script)
	for _, o := range []Options{{}, {NoOptimize: true}} {
		t.Run(fmt.Sprint(!o.NoOptimize), func(t *testing.T) {
			sub := startSubject(t, python, script)
			l := attach(t, sub.pid(), o, "p:in libc:getppid", "r:out libc:getppid v=$retval")
			if got := sub.work(); got != want {
				t.Errorf("probed, the program printed %q, otherwise %q", got, want)
			}
			l.finish(sub.pid())
			sub.end()
			for _, ev := range []string{"in", "out"} {
				if st := l.stat(ev); st.Hits != 4000 || st.Missed != 0 || st.Lost != 0 {
					t.Errorf("%s: %d hits, %d missed, %d lost; want 4000, 0 and 0", ev, st.Hits, st.Missed, st.Lost)
				}
			}
		})
	}
}
