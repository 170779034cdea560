package detour

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe/asm"
)

// symbolsOf gives the addresses of a program's symbols.
func symbolsOf(t *testing.T, prog string) map[string]uint64 {
	t.Helper()
	out, err := exec.Command(fixture.NeedTool(t, "nm"), prog).Output()
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]uint64{}
	for line := range strings.Lines(string(out)) {
		var a uint64
		var kind, name string
		if n, _ := fmt.Sscanf(line, "%x %s %s", &a, &kind, &name); n == 3 {
			at[name] = a
		}
	}
	return at
}

// TestFallbackCopies: a fault in a copy reaches the program's handler as one of the
// original, whatever the copy had done by then.
func TestFallbackCopies(t *testing.T) {
	prog := fixture.Build(t, "detour_net.c", "-O1", "-no-pie")
	at := symbolsOf(t, prog)
	for _, c := range []struct {
		words, addSP int
		scratch      asm.Reg
		want         string
	}{
		{0, 0, asm.NoReg, "rsp 0 rsi 111 rdi 222 rbx 333 here 1"},
		{1, 0, asm.NoReg, "rsp 0 rsi 111 rdi 222 rbx 333 here 0"},
		{1, 8, asm.NoReg, "rsp -8 rsi 111 rdi 222 rbx 333 here 0"},
		{2, 136, asm.SI, "rsp 0 rsi 77 rdi 222 rbx 333 here 0"},
		{2, 136, asm.DI, "rsp 0 rsi 111 rdi 77 rbx 333 here 0"},
		{3, 144, asm.BX, "rsp 0 rsi 111 rdi 222 rbx 77 here 0"},
	} {
		copied := at["copy_load"]
		if c.words == 0 {
			copied = at["copy_div"]
		}
		to, ok := CopyFault(at["load_here"], c.addSP, c.scratch)
		if !ok {
			t.Errorf("%+v can't be undone", c)
			continue
		}
		im, l, _ := fallbackImage(t, 3)
		if err := im.table.Insert(FaultKey(copied), to); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(prog, im.write(t), hex(l.Handler), hex(l.Restorer), hex(fallbackData), "copy", "handler", fmt.Sprint(c.words)).Output()
		if err != nil || !strings.Contains(string(out), " at load ") || !strings.Contains(string(out), c.want+"\nentered 1\n") {
			t.Errorf("%d words, %d off rsp, register %d: %v\n%swant %q", c.words, c.addSP, c.scratch, err, out, c.want)
		}
	}
}

func TestCopyFaultRefuses(t *testing.T) {
	for _, c := range []struct {
		ip      uint64
		addSP   int
		scratch asm.Reg
	}{{1 << 57, 0, asm.NoReg}, {1, 16, asm.NoReg}, {1, -8, asm.NoReg}, {1, 0, asm.SI}, {1, 8, asm.BX}, {1, 136, asm.AX}} {
		if to, ok := CopyFault(c.ip, c.addSP, c.scratch); ok {
			t.Errorf("%+v: %#x", c, to)
		}
	}
}
