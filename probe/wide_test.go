package probe

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"kprobe/internal/fixture"
)

// TestWideParameters reads C's numbers of 16 bytes at a function's entry, and what
// is passed behind them. GCC's location of the __int128 is wrong there.
func TestWideParameters(t *testing.T) {
	dir := t.TempDir()
	src, prog := filepath.Join(dir, "wide.c"), filepath.Join(dir, "wide")
	const text = `#include <complex.h>
__attribute__((noinline)) __int128 take(long double x, __int128 i, double _Complex z, int after)
{
	__asm__ volatile("");
	return i + after + (int)x + (int)creal(z);
}
int main(void) { return (int)take(2.5L, -3, 1.5 - 2.0 * I, 7) != 7; }
`
	if err := os.WriteFile(src, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, level := range []string{"-O0", "-O1", "-O2"} {
		if out, err := exec.Command(fixture.NeedCC(t), "-g", level, "-o", prog, src).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		sink := &collector{}
		traceCommand(t, Options{}, sink, []string{prog}, "p:e take x i z after")
		const want = "e x=2.5 i=-3 z={re=1.5,im=-2} after=7"
		if got := sink.all(); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %q, want %q", level, got, want)
		}
	}
}
