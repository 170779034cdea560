//go:build linux && amd64

package tracee

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
	"kprobe/symbols"
)

func TestSyscall(t *testing.T) {
	g := spawn(t, fixture.Build(t, "tracee_busy.c", "-O1"), "3")
	tr := newTracer(t)
	p := attach(t, tr, g.pid)
	running(t, tr, &recorder{t: t})
	do(t, tr, func() error {
		for range 200 {
			n, err := p.Syscall(context.Background(), nil, unix.SYS_GETPID)
			if err != nil || int(n) != g.pid {
				return fmt.Errorf("getpid gave %d, %v; want %d", n, err, g.pid)
			}
		}
		if _, err := p.Syscall(context.Background(), nil, unix.SYS_CLOSE, 12345); !errors.Is(err, syscall.EBADF) {
			return fmt.Errorf("close of a bad descriptor: %v", err)
		}
		return nil
	})
	if out, status := g.rest(); status != 0 {
		t.Errorf("status %d, output %q", status, out)
	}
}

// A program has no byte to spare behind its text: the call runs at the end of the vDSO,
// which is as it was afterwards. What a killed tracer leaves there is found.
func TestSyscallOfFullText(t *testing.T) {
	g := spawn(t, fixture.Build(t, "tracee_full.s", "-nostdlib", "-static"))
	vdso := func() []byte {
		maps, err := readMaps(g.pid)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range maps {
			if m.Path == "[vdso]" {
				b := make([]byte, m.End-m.Start)
				if _, err := (&Process{pid: g.pid}).ReadMemory(b, m.Start); err != nil {
					t.Fatal(err)
				}
				return b
			}
		}
		t.Fatal("the program has no vDSO")
		return nil
	}
	before := vdso()
	tr := newTracer(t)
	p := attach(t, tr, g.pid)
	running(t, tr, &recorder{t: t})
	do(t, tr, func() error {
		for range 20 {
			n, err := p.Syscall(context.Background(), nil, unix.SYS_GETPID)
			if err != nil || int(n) != g.pid {
				return fmt.Errorf("getpid gave %d, %v; want %d", n, err, g.pid)
			}
		}
		if _, _, ok := Injected(g.pid); ok {
			return errors.New("injected code is found where none was left")
		}
		return p.WithStopped(context.Background(), func([]*Thread) error {
			var r room
			maps, err := readMaps(g.pid)
			if err != nil || !p.findPadding(&r, maps) {
				return fmt.Errorf("no place for code: %w", err)
			}
			if err := p.WriteMemory(InjectedCode(), symbols.Addr(r.code)); err != nil {
				return err
			}
			at, original, ok := Injected(g.pid)
			if !ok || uint64(at) != r.code {
				return fmt.Errorf("the code that was left at %#x is found at %v, %v", r.code, at, ok)
			}
			return p.WriteMemory(original, at)
		})
	})
	do(t, tr, func() error { return p.Detach(context.Background(), nil) })
	if !bytes.Equal(vdso(), before) {
		t.Error("the vDSO is changed")
	}
	if out, status := g.rest(); status != 0 {
		t.Errorf("status %d, output %q", status, out)
	}
}

// Every thread in turn, whatever it waits in.
func TestSyscallInEachThread(t *testing.T) {
	g := spawn(t, fixture.Build(t, "tracee_busy.c", "-O1"), "2")
	tr := newTracer(t)
	p := attach(t, tr, g.pid)
	running(t, tr, &recorder{t: t})
	for range 50 {
		do(t, tr, func() error {
			return p.WithStopped(context.Background(), func(ts []*Thread) error {
				if len(ts) != 4 {
					return fmt.Errorf("%d threads", len(ts))
				}
				for _, th := range ts {
					n, err := p.Syscall(context.Background(), th, unix.SYS_GETTID)
					if err != nil || int(n) != th.TID() {
						return fmt.Errorf("gettid in %d gave %d, %v", th.TID(), n, err)
					}
				}
				return nil
			})
		})
	}
	if out, status := g.rest(); status != 0 {
		t.Errorf("status %d, output %q", status, out)
	}
}

func TestScratchAndCall(t *testing.T) {
	g := spawn(t, fixture.Build(t, "tracee_busy.c", "-O1"), "2")
	tr := newTracer(t)
	p := attach(t, tr, g.pid)
	running(t, tr, &recorder{t: t})
	do(t, tr, func() error {
		fn := mapScratch(t, p)
		for range 100 {
			n, err := p.Call(context.Background(), nil, fn, 40, 2)
			if err != nil || n != 42 {
				return fmt.Errorf("call gave %d, %v", n, err)
			}
		}
		// A fault in the function is ours, not the program's.
		if _, err := p.Call(context.Background(), nil, 16); err == nil || !strings.Contains(err.Error(), "segmentation") {
			return fmt.Errorf("call of address 16: %v", err)
		}
		return nil
	})
	if out, status := g.rest(); status != 0 {
		t.Errorf("status %d, output %q", status, out)
	}
}

// mapScratch makes scratch areas and a function that adds two numbers, makes a
// system call, and spoils the vector registers.
func mapScratch(t testing.TB, p *Process) symbols.Addr {
	fn, err := makeScratch(p)
	if err != nil {
		t.Fatal(err)
	}
	return fn
}

func makeScratch(p *Process) (symbols.Addr, error) {
	ctx := context.Background()
	at, err := p.Syscall(ctx, nil, unix.SYS_MMAP, 0, pageSize+ScratchFrame,
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, ^uintptr(0), 0)
	if err != nil {
		return 0, err
	}
	if _, err := p.Syscall(ctx, nil, unix.SYS_MPROTECT, at, pageSize, unix.PROT_READ|unix.PROT_EXEC); err != nil {
		return 0, err
	}
	code := symbols.Addr(at)
	if err := p.SetScratch(code, code+pageSize); err != nil {
		return 0, err
	}
	fn := code + 256
	err = p.WriteMemory([]byte{
		0xb8, 39, 0, 0, 0, // mov eax, 39 (getpid)
		0x0f, 0x05, // syscall
		0x66, 0x0f, 0xef, 0xc0, // pxor xmm0, xmm0
		0x66, 0x0f, 0xef, 0xc9, // pxor xmm1, xmm1
		0x48, 0x8d, 0x04, 0x37, // lea rax, [rdi+rsi]
		0xc3, // ret
	}, fn)
	if err != nil {
		return 0, err
	}
	return fn, nil
}

func threadStates(pid int) []byte {
	var states []byte
	tids, _ := tasks(pid)
	for _, tid := range tids {
		states = append(states, taskState(pid, tid))
	}
	return states
}
