package probe

import (
	"bufio"
	"context"
	"encoding/binary"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"kprobe/internal/fixture"
	"kprobe/internal/procfs"
	"kprobe/probe/memory"
	"kprobe/probe/plan"
	"kprobe/probe/ring"
)

// forged starts a program that maps what make gives as kprobe's memory file.
func forged(t *testing.T, make func(victim uint64) []byte) (pid int) {
	t.Helper()
	cmd := exec.Command(fixture.Build(t, "probe_forged.c", "-O1"), strconv.Itoa(64<<20))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	lines.Scan()
	victim, err := strconv.ParseUint(strings.TrimPrefix(lines.Text(), "0x"), 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write(make(victim)); err != nil {
		t.Fatal(err)
	}
	in.Close()
	if !lines.Scan() || lines.Text() != "ready" {
		t.Fatalf("the program says %q", lines.Text())
	}
	return cmd.Process.Pid
}

const (
	forgedBase = 0x200000000
	forgedLoop = 0x210000000 // a list that leads to itself
)

// TestHazardH3: a program that has forged a memory file of kprobe's neither keeps
// who looks for sessions, nor who recovers, and runs on.
func TestHazardH3(t *testing.T) {
	header := func(p ring.Params, change func(h *ring.Header)) ([]byte, *ring.Layout) {
		l, err := ring.New(p)
		if err != nil {
			t.Fatal(err)
		}
		h := &ring.Header{Generation: 1, Base: forgedBase, Tracer: uint32(os.Getpid()), TracerStart: procfs.StartTime(os.Getpid())}
		change(h)
		return h.Encode(l), l
	}
	here := ring.Params{CPUs: memory.PossibleCPUs()}
	// table puts entries behind a header.
	table := func(page []byte, off int64, entries ...[]byte) []byte {
		out := append(page, make([]byte, off-int64(len(page)))...)
		for _, e := range entries {
			out = append(out, e...)
		}
		return out
	}
	site := func(at uint64, before, after []byte) []byte {
		b, err := (&ring.Site{Addr: at, Tactic: uint16(plan.Single), Before: before, After: after}).Encode()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, tt := range []struct {
		name string
		make func(victim uint64) []byte
	}{
		{"as many CPUs and probes as there can be", func(uint64) []byte {
			page, _ := header(ring.Params{CPUs: ring.MaxCPUs, MaxProbes: ring.MaxID}, func(h *ring.Header) { h.Probes, h.Sites = ring.MaxID, ring.MaxID })
			return page
		}},
		{"as many probes as a session has", func(uint64) []byte {
			page, _ := header(here, func(h *ring.Header) { h.Probes, h.Sites, h.Maps = ring.DefaultMaxProbes, ring.DefaultMaxProbes, 1<<14 })
			return page
		}},
		{"writes that undo each other", func(victim uint64) []byte {
			page, l := header(here, func(h *ring.Header) { h.Sites = 4096 })
			text := []byte{0x8d, 0x44, 0x7f, 0x01} // lea 1(%rdi,%rdi,2), %eax
			other := []byte{0x8d, 0x44, 0x7f, 0x02}
			var list [][]byte
			for range 2048 {
				list = append(list, site(victim, text, other), site(victim, other, text))
			}
			return table(page, l.Sites.Off, list...)
		}},
		{"a write of nothing", func(victim uint64) []byte {
			page, l := header(here, func(h *ring.Header) { h.Sites = 1 })
			empty := site(victim, nil, nil)
			binary.LittleEndian.PutUint16(empty[12:], uint16(plan.Breakpoint))
			return table(page, l.Sites.Off, empty)
		}},
		{"a list that leads to itself", func(uint64) []byte {
			page, _ := header(here, func(*ring.Header) {})
			binary.LittleEndian.PutUint64(page[memory.HeaderPools:], forgedLoop)
			return page
		}},
		{"no other process's fallback handlers", func(victim uint64) []byte {
			page, _ := header(here, func(*ring.Header) {})
			binary.LittleEndian.PutUint64(page[memory.HeaderFallback:], victim)
			binary.LittleEndian.PutUint64(page[memory.HeaderFallbackData:], forgedLoop)
			binary.LittleEndian.PutUint64(page[memory.HeaderScratch:], victim)
			return page
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pid := forged(t, tt.make)
			within := func(what string, do func(ctx context.Context)) {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), patient)
				defer cancel()
				done := make(chan struct{})
				go func() { defer close(done); do(ctx) }()
				select {
				case <-done:
				case <-ctx.Done():
					t.Fatalf("%s is not done after %v", what, patient)
				}
			}
			within("to look for sessions", func(context.Context) {
				if l, err := OpenLive(pid); err == nil {
					l.Probes()
					l.Close()
				}
			})
			within("to recover", func(ctx context.Context) {
				_, err := Recover(ctx, []int{pid})
				t.Logf("recover: %v", err)
			})
			if err := syscall.Kill(pid, 0); err != nil {
				t.Errorf("the program: %v", err)
			}
			waitState(t, pid)
		})
	}
}

// waitState waits until a process is traced by nobody and neither stopped nor
// ended.
func waitState(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(patient); ; time.Sleep(10 * time.Millisecond) {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
		if err != nil {
			t.Fatal(err)
		}
		s := string(b)
		if strings.Contains(s, "\nTracerPid:\t0\n") && (strings.Contains(s, "State:\tS") || strings.Contains(s, "State:\tR")) {
			return
		}
		if time.Now().After(end) || strings.Contains(s, "State:\tZ") {
			t.Fatalf("the program is not as it was:\n%s", s[:200])
		}
	}
}
