package detour

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// rseqArea is Params.Rseq of the C programs of these tests.
func rseqArea(t testing.TB) int32 {
	t.Helper()
	out, err := exec.Command(fixture.Build(t, "rseq_area.c", "-O1")).Output()
	if err != nil {
		t.Fatal(err)
	}
	off, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	if off == 0 {
		fixture.Missing(t, "a C library with rseq areas")
	}
	return int32(off)
}
