package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// passer is a running usdt_peers.
type passer struct {
	t   *testing.T
	in  io.WriteCloser
	out io.Reader
}

// pass has it pass its probe so often.
func (p *passer) pass(n int) {
	p.t.Helper()
	var b [5]byte
	if _, err := fmt.Fprintf(p.in, "%d\n", n); err != nil {
		p.t.Fatal(err)
	}
	if _, err := io.ReadFull(p.out, b[:]); err != nil || string(b[:]) != "done\n" {
		p.t.Fatalf("the program says %q, %v", b, err)
	}
}

// traced runs a tracer until it has seen seven passes in a row, and gives what print then
// tells of these. seen reports whether it has begun to see any; all, unless it is nil,
// whether it has written them down.
func (p *passer) traced(seen, all func() bool, print func() (string, error), argv ...string) []string {
	p.t.Helper()
	var said bytes.Buffer
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	defer cmd.Process.Kill()
	for end := time.Now().Add(time.Minute); !seen(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("%s sees nothing: %s", argv[0], said.String())
		}
		p.pass(1)
	}
	p.pass(7)
	for end := time.Now().Add(time.Minute); all != nil && !all() && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	if n := interrupt(cmd); n > 1 && filepath.Base(argv[0]) != "bpftrace" {
		p.t.Errorf("%s ended at the %dth ^C", argv[0], n)
	}
	text, err := print()
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if err != nil || len(lines) < 8 {
		p.t.Fatalf("%s: %v, %q; %s", argv[0], err, lines, said.String())
	}
	return lines[len(lines)-7:]
}

// interrupt ends a tracer by ^C, waits until it has ended, and returns how often it was
// signalled. Its status is its own. The signal is repeated, because bpftrace sleeps on if one
// arrives just before it waits for events.
func interrupt(cmd *exec.Cmd) int {
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	const most = 6
	for n := range most {
		_ = cmd.Process.Signal(unix.SIGINT)
		select {
		case <-ended:
			return n + 1
		case <-time.After(20 * time.Second):
		}
	}
	_ = cmd.Process.Kill()
	<-ended
	return most
}

// TestUSDTAgainstPeers: a statically defined probe's arguments are what bpftrace and perf
// print of the same process.
func TestUSDTAgainstPeers(t *testing.T) {
	bpftrace, perf := fixture.NeedTool(t, "bpftrace"), fixture.NeedTool(t, "perf")
	kprobe, prog, dir := program(t), fixture.Build(t, "usdt_peers.c", "-O1"), t.TempDir()
	cmd := exec.Command(prog)
	in, out := fixture.Start(t, cmd)
	p := &passer{t, in, out}
	if _, err := io.ReadFull(out, make([]byte, len("ready\n"))); err != nil {
		t.Fatal(err)
	}
	pid := fmt.Sprint(cmd.Process.Pid)
	at := func(name string) string { return filepath.Join(dir, name) }
	reads := func(name string) func() (string, error) {
		return func() (string, error) {
			b, err := os.ReadFile(at(name))
			return string(b), err
		}
	}
	wrote := func(name, what string) func() bool {
		return func() bool {
			text, err := reads(name)()
			return err == nil && strings.Contains(text, what)
		}
	}
	var want []string
	for i := range 7 {
		want = append(want, fmt.Sprintf("%d text %d %d %d -3", i-2, i, -1000000000000*i, uint16(3*(i-2))))
	}
	check := func(who string, have []string) {
		if strings.Join(have, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s has\n%s\nwant\n%s", who, strings.Join(have, "\n"), strings.Join(want, "\n"))
		}
	}

	check("bpftrace", p.traced(wrote("bpf", "text 0"), wrote("bpf", "text 6"), reads("bpf"), bpftrace, "-B", "line", "-p", pid, "-o", at("bpf"), "-e",
		"usdt:"+prog+`:peers:pass { printf("%d %s %ld %d %d\n", (int32)arg0, str(arg1), arg2, arg3, (int8)arg4); }`))

	hits := p.traced(wrote("own", "text 0"), nil, reads("own"), kprobe, "trace", "-q", "-p", pid, "-o", at("own"),
		"%peers:pass a=$arg1 text=$arg2:string b=$arg3 c=$arg4 d=$arg5 at=$arg2:u64")
	var values, addresses []string
	for _, line := range hits {
		var a, b, c, d int64
		var i int
		var text uint64
		_, line, _ = strings.Cut(line, ") ")
		if _, err := fmt.Sscanf(line, `a=%d text="text %d" b=%d c=%d d=%d at=%d`, &a, &i, &b, &c, &d, &text); err != nil {
			t.Errorf("%q: %v", line, err)
		}
		values = append(values, fmt.Sprintf("%d text %d %d %d %d", a, i, b, c, d))
		addresses = append(addresses, fmt.Sprintf("arg1=%d arg2=%d arg3=%d arg4=%d", a, text, b, c))
	}
	check("kprobe", values)

	// perf makes an event of the kernel's of the note, without what is a constant in it.
	for _, args := range [][]string{{"buildid-cache", "--add", prog}, {"probe", "-q", "sdt_peers:pass"}} {
		if text, err := exec.Command(perf, append([]string{"--buildid-dir", at("buildids")}, args...)...).CombinedOutput(); err != nil {
			fixture.Missing(t, "a perf and a tracefs that take statically defined probes (%v: %s)", err, text)
		}
	}
	t.Cleanup(func() { _ = exec.Command(perf, "probe", "-q", "-d", "sdt_peers:*").Run() })
	own := fmt.Sprintf("/sys/kernel/tracing/instances/kprobetest%d", os.Getpid())
	if err := os.Mkdir(own, 0o755); err != nil {
		fixture.Missing(t, "an instance of tracefs (%v)", err)
	}
	t.Cleanup(func() { _ = os.Remove(own) })
	enable := filepath.Join(own, "events/sdt_peers/pass/enable")
	t.Cleanup(func() { _ = os.WriteFile(enable, []byte("0"), 0) })
	if err := os.WriteFile(enable, []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	p.pass(7)
	text, err := os.ReadFile(filepath.Join(own, "trace"))
	if err != nil {
		t.Fatal(err)
	}
	var events []string
	for line := range strings.Lines(string(text)) {
		if _, values, ok := strings.Cut(strings.TrimSpace(line), ") arg1="); ok {
			events = append(events, "arg1="+values)
		}
	}
	if !slices.Equal(events, addresses) {
		t.Errorf("perf's event has\n%s\nkprobe\n%s", strings.Join(events, "\n"), strings.Join(addresses, "\n"))
	}
	fmt.Fprintln(in)
	_ = cmd.Wait()
	if status := cmd.ProcessState.ExitCode(); status != 7 {
		t.Errorf("the program ended with %d", status)
	}
}

// TestFileAgainstUprobe: of all processes that run a file as many hits are counted as the
// kernel counts by a uprobe, which is the file's, for as many calls in the same number of
// processes.
func TestFileAgainstUprobe(t *testing.T) {
	const processes, calls = 20, 7
	const top = "/sys/kernel/tracing/"
	kprobe := program(t)
	prog := filepath.Join(t.TempDir(), "peers")
	if b, err := os.ReadFile(fixture.Build(t, "usdt_peers.c", "-O1")); err != nil {
		t.Fatal(err)
	} else if err := os.WriteFile(prog, b, 0o755); err != nil {
		t.Fatal(err)
	}
	run := func() {
		var all sync.WaitGroup
		for range processes {
			all.Go(func() {
				cmd := exec.Command(prog)
				cmd.Stdin = strings.NewReader(fmt.Sprintf("%d\n\n", calls))
				if _, err := cmd.Output(); cmd.ProcessState.ExitCode() != 7 {
					t.Errorf("a program ended with %v", err)
				}
			})
		}
		all.Wait()
	}
	file, err := symbols.OpenFile(prog)
	if err != nil {
		t.Fatal(err)
	}
	list := file.Lookup("pass")
	if len(list) == 0 {
		t.Fatal("there is no function pass")
	}
	off, _ := file.VaddrToOff(list[0].Vaddr)
	event := fmt.Sprintf("kprobetest%d/pass", os.Getpid())
	write := func(name, text string) error {
		f, err := os.OpenFile(top+name, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.WriteString(text + "\n")
		return err
	}
	if err := write("uprobe_events", fmt.Sprintf("p:%s %s:%#x", event, prog, uint64(off))); err != nil {
		fixture.Missing(t, "a tracefs with uprobe_events that may be written (%v)", err)
	}
	t.Cleanup(func() {
		_ = write("events/"+event+"/enable", "0")
		_ = write("uprobe_events", "-:"+event)
	})
	if err := write("events/"+event+"/enable", "1"); err != nil {
		t.Fatal(err)
	}
	run()
	if err := write("events/"+event+"/enable", "0"); err != nil {
		t.Fatal(err)
	}
	profile, err := os.ReadFile(top + "uprobe_profile")
	if err != nil {
		t.Fatal(err)
	}
	byKernel := ""
	for line := range strings.Lines(string(profile)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == prog {
			byKernel = f[2]
		}
	}

	cmd := exec.Command(kprobe, "profile", "-x", prog, "--wait", "pass")
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	text := ""
	for b := make([]byte, 256); !strings.Contains(text, "waiting for processes"); {
		n, err := said.Read(b)
		if text += string(b[:n]); err != nil {
			t.Fatalf("kprobe says %q, %v", text, err)
		}
	}
	go io.Copy(io.Discard, said)
	run()
	_ = cmd.Process.Signal(unix.SIGINT)
	_ = cmd.Wait()
	f := strings.Fields(out.String())
	if len(f) != 3 || f[1] != byKernel || byKernel != fmt.Sprint(processes*calls) {
		t.Errorf("kprobe counts %q, a uprobe %s hits, of %d", f, byKernel, processes*calls)
	}
}
