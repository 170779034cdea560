package insn

import (
	"testing"

	"kprobe/internal/fixture"
)

// TestRare reads encodings that the libraries have few of or none.
func TestRare(t *testing.T) {
	path := fixture.Build(t, "insn_rare.s", "-nostdlib", "-static", "-no-pie", "-Wl,-e,0")
	n := 0
	objdump(t, path, ".text", func(l line) {
		n++
		i, err := Decode(l.code)
		if err != nil || int(i.Len) != len(l.code) {
			t.Errorf("% x %q is %d bytes, %v", l.code, l.text, i.Len, err)
			return
		}
		if what := disagree(i, l, l.code); what != "" {
			t.Errorf("% x %q: %s", l.code, l.text, what)
		}
	})
	if n < 200 {
		t.Errorf("only %d instructions", n)
	}
}
