package plan

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe/insn"
)

// This processor raises what guards rely on, at the guard itself, whatever
// follows; and the decoder takes none of them for an instruction.
func TestTrapsTrap(t *testing.T) {
	bin := fixture.Build(t, "plan_traps.c", "-O1")
	var args []string
	for b := range 256 {
		if Traps().Has(byte(b)) {
			args = append(args, fmt.Sprintf("%02x", b))
		}
	}
	out, err := exec.Command(bin, args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != 5*len(args) || len(args) != 15 {
		t.Fatalf("%d lines for %d bytes", len(lines), len(args))
	}
	for i, line := range lines {
		want := fmt.Sprintf("%s %d 0", args[i/5], syscall.SIGILL)
		if args[i/5] == "cc" {
			want = fmt.Sprintf("cc %d 1", syscall.SIGTRAP)
		}
		if line != want {
			t.Errorf("got %q, want %q", line, want)
		}
	}
	for b := range 256 {
		i, err := insn.Decode(append([]byte{byte(b)}, make([]byte, 15)...))
		if Traps().Has(byte(b)) && err == nil && !i.Is(insn.Trap) {
			t.Errorf("%02x decodes, %d bytes", b, i.Len)
		}
	}
}
