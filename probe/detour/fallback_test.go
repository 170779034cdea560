package detour

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe/asm"
)

const (
	fallbackBase   = 0x10_3100_0000
	fallbackData   = 0x10_3200_0000
	fallbackTables = 0x10_3210_0000
	siteBase       = 0x10_3300_0000
)

// fallbackImage is a fallback handler with sites whose copies add 1, 2, … to their argument,
// and a return trampoline that jumps on to code that adds 1000.
func fallbackImage(t *testing.T, sites int) (*image, FallbackLabels, []uint64) {
	t.Helper()
	code, l := Fallback(fallbackBase, FallbackParams{Data: fallbackData})
	data := make(memory, FallbackDataSize)
	table := make(memory, TableSize(sites))
	tab, err := NewTable(table, fallbackTables, len(table))
	if err != nil {
		t.Fatal(err)
	}
	c := asm.New(siteBase)
	var at []uint64
	for i := range sites {
		c.Align(16, 0xcc)
		at = append(at, c.Here())
		c.Int3() // was nop; lea rax, [rdi+i+1]
		c.Lea(asm.AX, asm.At(asm.DI, -100000))
		c.Ret()
		to := c.Here()
		c.Lea(asm.AX, asm.At(asm.DI, int32(i+1)))
		c.Ret()
		if err := tab.Insert(at[i], to); err != nil {
			t.Fatal(err)
		}
	}
	c.Align(4096, 0xcc)
	trampoline := c.Here()
	c.Int3()
	c.Lea(asm.AX, asm.At(asm.DI, 1000))
	c.Ret()
	at = append(at, trampoline)

	nd := FallbackData{W: data}
	nd.SetTable(fallbackTables)
	nd.SetTrampolines(2, trampoline, 64)
	im := &image{table: tab}
	im.add(fallbackBase, protRX, code)
	im.add(fallbackData, protRW, data)
	im.add(fallbackTables, protRW, table)
	im.add(siteBase, protRX, assemble(t, c))
	return im, l, at
}

func hex(v uint64) string { return strconv.FormatUint(v, 16) }

func TestFallbackThreads(t *testing.T) {
	const sites, threads, n = 100, 8, 50
	im, l, at := fallbackImage(t, sites)
	args := []string{im.write(t), hex(l.Handler), hex(l.Restorer), hex(fallbackData), "loop", strconv.Itoa(threads), strconv.Itoa(n)}
	for _, a := range at {
		args = append(args, hex(a))
	}
	out, err := exec.Command(fixture.Build(t, "detour_net.c", "-O1"), args...).Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := uint64(0)
	for i := range uint64(n) {
		for s := range uint64(sites) {
			want += i + s + 1
		}
		want += i + 1000
	}
	got := strings.Fields(string(out))
	if len(got) != threads+1 {
		t.Fatalf("output %q", out)
	}
	for i, g := range got[:threads] {
		if g != strconv.FormatUint(want, 10) {
			t.Errorf("thread %d: sum %s, want %d", i, g, want)
		}
	}
	if w := strconv.Itoa(threads * n * (sites + 1)); got[threads] != w {
		t.Errorf("the fallback handler counted %s, want %s", got[threads], w)
	}
}

// A signal that isn't the fallback handler's must do what it does without the fallback handler.
func TestFallbackForeign(t *testing.T) {
	prog := fixture.Build(t, "detour_net.c", "-O1", "-no-pie")
	im, l, _ := fallbackImage(t, 3)
	path := im.write(t)
	run := func(t *testing.T, handler uint64, event, how string) string {
		cmd := exec.Command(prog, path, hex(handler), hex(l.Restorer), hex(fallbackData), event, how)
		out, err := cmd.Output()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		status := cmd.ProcessState.Sys().(syscall.WaitStatus)
		return fmt.Sprintf("%sexited %v %d signal %d", out, status.Exited(), status.ExitStatus(), int(status.Signal()))
	}
	for _, event := range []string{"int3", "int3cd", "load", "ill", "step", "raise", "kill", "killsegv", "queue", "blocked", "suspend"} {
		for _, how := range []string{"handler", "dfl", "ign", "handler,nodefer", "handler,mask", "handler,mask,nodefer",
			"handler,reset,twice", "handler,alt", "handler,twice"} {
			t.Run(event+"/"+how, func(t *testing.T) {
				t.Parallel()
				without := run(t, 0, event, how)
				with := run(t, l.Handler, event, how)
				if with != without {
					t.Errorf("with the fallback handler:\n%s\nwithout:\n%s", with, without)
				}
				if strings.HasPrefix(how, "handler") && !strings.Contains(without, "handler ") && event != "blocked" {
					t.Errorf("the case does nothing: %s", without)
				}
			})
		}
	}
}

// A thread that trapped at a site whose probe is gone goes on at the
// instruction that is there again; an int3 that is there is the program's.
func TestFallbackRetired(t *testing.T) {
	prog := fixture.Build(t, "detour_net.c", "-O1", "-no-pie")
	for _, removed := range []bool{false, true} {
		im, l, at := fallbackImage(t, 3)
		if removed {
			im.table.Remove(at[1])
		} else {
			im.table.Retire(at[1])
		}
		out, err := exec.Command(prog, im.write(t), hex(l.Handler), hex(l.Restorer), hex(fallbackData), "site", "dfl", hex(at[1])).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTRAP {
			t.Errorf("removed %v: %v, %s; want death by SIGTRAP", removed, err, out)
		}
	}
}

func TestFallbackSize(t *testing.T) {
	for _, base := range []uint64{0, fallbackBase, 0x7fff_ffff_f000, ^uint64(0) - 8191} {
		code, l := Fallback(base, FallbackParams{Data: ^uint64(0) / 3})
		if len(code) > 1024 || // four share a page (package fallbacks)
			l.End != base+uint64(len(code)) || l.Handler != base {
			t.Errorf("base %#x: %d bytes, labels %+v", base, len(code), l)
		}
	}
}

// The instruction is back at a retired site: the thread goes on there. The
// two-byte int 3 stands for it: its second byte is where the trap is looked
// up, and is no int3.
func TestFallbackInstructionBack(t *testing.T) {
	const at = siteBase + 1<<20
	c := asm.New(at)
	c.Op(asm.Xor, asm.W32, asm.AX, asm.AX)
	c.Raw(0xcd)
	site := c.Here()
	c.Raw(0x03, 0xc7) // behind cd: int 3, then the rest; from here: add eax, edi
	c.Ret()
	im, l, _ := fallbackImage(t, 3)
	if err := im.table.Insert(site, 1); err != nil {
		t.Fatal(err)
	}
	im.table.Retire(site)
	im.add(at, protRX, assemble(t, c))
	out, err := exec.Command(fixture.Build(t, "detour_net.c", "-O1"), im.write(t), hex(l.Handler), hex(l.Restorer),
		hex(fallbackData), "loop", "2", "10", hex(at)).Output()
	if err != nil || string(out) != "45\n45\n0\n" {
		t.Errorf("%v: %q, want two sums of 45 and nothing counted", err, out)
	}
}

// TestFallbackSteps: traps of single steps are swallowed as often as a tracer that was
// killed had begun one; the others are the program's.
func TestFallbackSteps(t *testing.T) {
	prog := fixture.Build(t, "detour_net.c", "-O1", "-no-pie")
	const counter = fallbackData + 0x8000
	entered := func(handler uint64, steps int) int {
		im, l, _ := fallbackImage(t, 3)
		if handler != 0 {
			handler = l.Handler
		}
		FallbackData{W: memory(im.segs[1].bytes)}.SetSteps(counter)
		im.add(counter, protRW, binary.LittleEndian.AppendUint64(nil, uint64(steps)))
		out, err := exec.Command(prog, im.write(t), hex(handler), hex(l.Restorer), hex(fallbackData), "step", "handler").Output()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		_, last, _ := strings.Cut(string(out), "entered ")
		n, err := strconv.Atoi(strings.Fields(last)[0])
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return n
	}
	all := entered(0, 0)
	if all < 2 {
		t.Fatalf("the program makes %d steps", all)
	}
	for _, steps := range []int{0, 1, all, all + 3, -1} {
		if n, want := entered(1, steps), all-min(max(steps, 0), all); n != want {
			t.Errorf("%d steps of a tracer's: the program saw %d of %d, want %d", steps, n, all, want)
		}
	}
}

// TestFallbackPromise: the thread goes on where a tracer that was killed has said.
func TestFallbackPromise(t *testing.T) {
	prog := fixture.Build(t, "detour_net.c", "-O1", "-no-pie")
	im, l, _ := fallbackImage(t, 3)
	for code, want := range map[uint64]string{PromiseCode: "kept 1\nentered 0\n", PromiseCode + 1: "kept 0\nentered 1\n"} {
		out, err := exec.Command(prog, im.write(t), hex(l.Handler), hex(l.Restorer), hex(fallbackData), "promise", "handler", hex(code)).Output()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("code %#x: %v: %s, want %q", code, err, out, want)
		}
	}
}
