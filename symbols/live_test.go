package symbols

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// liveProcess is a running fixture (testdata/sym_main.c) and what it told of
// itself.
type liveProcess struct {
	pid  int
	told map[string]Addr
	in   io.WriteCloser
	out  *bufio.Scanner
	mem  *os.File
}

// procMemory reads a child's memory through /proc/PID/mem.
type procMemory struct{ f *os.File }

func (m procMemory) ReadMemory(b []byte, at Addr) (int, error) { return m.f.ReadAt(b, int64(at)) }

func (p *liveProcess) memory() Memory { return procMemory{p.mem} }

// startLive starts a program and reads its lines up to "ready". The process
// ends with the test.
func startLive(t testing.TB, cmd *exec.Cmd) *liveProcess {
	t.Helper()
	in, out := fixture.Start(t, cmd)
	p := &liveProcess{pid: cmd.Process.Pid, told: map[string]Addr{}, in: in, out: bufio.NewScanner(out)}
	p.listen(t)
	var err error
	p.mem, err = os.Open(fmt.Sprintf("/proc/%d/mem", p.pid))
	if err != nil {
		fixture.Missing(t, "the right to read another process's memory: %v", err)
	}
	t.Cleanup(func() { p.mem.Close() })
	return p
}

func (p *liveProcess) listen(t testing.TB) {
	t.Helper()
	for p.out.Scan() {
		if p.out.Text() == "ready" {
			return
		}
		name, hex, ok := strings.Cut(p.out.Text(), " 0x")
		v, err := strconv.ParseUint(hex, 16, 64)
		if strings.HasSuffix(p.out.Text(), "(nil)") {
			name, ok, err = strings.TrimSuffix(p.out.Text(), " (nil)"), true, nil
		}
		if !ok || err != nil {
			t.Fatalf("the fixture says %q", p.out.Text())
		}
		p.told[name] = Addr(v)
	}
	t.Fatal("the fixture ended before it was ready")
}

// otherSource is the second source file of sym_main.c.
func otherSource() string { return filepath.Join(fixture.Root(), "testdata", "sym_other.c") }

// placeOf reads the forms of places that these tests use: SYM, MOD:SYM,
// SYM@FILE.c.
func placeOf(text string) Place {
	p := Place{Symbol: text}
	if i := strings.LastIndex(text, "@"); i > 0 && strings.HasSuffix(text, ".c") {
		p.Symbol, p.File = text[:i], text[i+1:]
	}
	if mod, sym, ok := strings.Cut(p.Symbol, ":"); ok && !strings.HasPrefix(sym, ":") {
		p.Module, p.Symbol = mod, sym
		if v, err := strconv.ParseUint(sym, 0, 64); err == nil && strings.HasPrefix(sym, "0x") {
			p = Place{Kind: PlaceVaddr, Module: mod, Value: v}
		}
	}
	return p
}

// copyFile copies a program and keeps its mode.
func copyFile(t testing.TB, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o755); err != nil {
		t.Fatal(err)
	}
}

// run runs a tool and gives its standard output.
func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(fixture.NeedTool(t, name), args...).Output()
	if err != nil {
		t.Fatalf("%s %q: %v", name, args, err)
	}
	return string(out)
}
