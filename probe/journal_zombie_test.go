package probe

import (
	"os/exec"
	"testing"
	"time"
)

// TestZombieHasNoStart says that a process that has ended isn't taken for one
// that runs, though its parent has not taken notice.
func TestZombieHasNoStart(t *testing.T) {
	for stat, want := range map[string]uint64{
		"7 (a b) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 0":  4711,
		"7 (a) Z) R 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 0": 4711,
		"7 (a) S) Z 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 0": 0,
		"7 (a) X 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 0":    0,
		"7 (a": 0, "7 (a)": 0, "7 (a) ": 0, "": 0,
	} {
		if got := parseStartTime([]byte(stat)); got != want {
			t.Errorf("%q: %d, want %d", stat, got, want)
		}
	}
	c := exec.Command("sleep", "60")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if startTime(c.Process.Pid) == 0 {
		t.Error("a process that runs has no start")
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); startTime(c.Process.Pid) != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a process that was killed keeps its start")
		}
	}
	_ = c.Wait()
}
