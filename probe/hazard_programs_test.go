package probe

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// busy is somebody else's program at work. A line from it says that it has begun.
type busy struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// startBusy starts a program that prints "ready", works when it gets a line,
// and prints a line of results.
func startBusy(t *testing.T, name string, args ...string) *busy {
	t.Helper()
	b := &busy{t: t, cmd: exec.Command(name, args...)}
	b.cmd.Stderr = os.Stderr
	in, err := b.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := b.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	b.in, b.out = in, bufio.NewReader(out)
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.cmd.Process.Kill(); _ = b.cmd.Wait() })
	if got := b.read(); got != "ready" {
		t.Fatalf("%s printed %q, want ready", name, got)
	}
	return b
}

func (b *busy) read() string {
	line, err := b.out.ReadString('\n')
	if err != nil {
		b.t.Errorf("%s: %v", b.cmd.Path, err)
	}
	return strings.TrimSpace(line)
}

func (b *busy) work() string {
	b.t.Helper()
	if _, err := b.in.Write([]byte("go\n")); err != nil {
		b.t.Fatal(err)
	}
	return b.read()
}

// functionsOf gives definitions for up to n functions of a file, spread over
// the whole of it.
func functionsOf(t *testing.T, path, module string, n int) []string {
	t.Helper()
	f, err := symbols.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	funcs := f.Funcs()
	step := max(1, len(funcs)/n)
	var defs []string
	for i := 0; i < len(funcs) && len(defs) < n; i += step {
		if funcs[i].End > funcs[i].Start && !strings.HasPrefix(funcs[i].Symbol.Name, "_init") {
			defs = append(defs, fmt.Sprintf("p:e%d %s:0x%x", len(defs), module, uint64(funcs[i].Start)))
		}
	}
	return defs
}

// armEach arms those of the definitions that can be, as few batches as needed.
func armEach(t *testing.T, s *Session, defs []string) int {
	t.Helper()
	if err := s.Arm(t.Context(), parseDefs(t, defs...)); err == nil {
		return len(defs)
	} else if len(defs) == 1 {
		t.Log(err)
		return 0
	}
	return armEach(t, s, defs[:len(defs)/2]) + armEach(t, s, defs[len(defs)/2:])
}

// probeBusy has a program work without probes, with them, and after.
func probeBusy(t *testing.T, b *busy, path, module string, n int) {
	t.Helper()
	want := b.work()
	pid := b.cmd.Process.Pid
	before := sameText(t, pid)
	l, _ := engage(t, pid, Options{CountOnly: true})
	armed := armEach(t, l.s, functionsOf(t, path, module, n))
	if got := b.work(); got != want {
		t.Errorf("probed, it printed %q, otherwise %q", got, want)
	}
	hit, jumps := 0, 0
	for _, st := range l.s.Stats() {
		if st.Hits > 0 {
			hit++
		}
	}
	for _, o := range jumpsOf(t, l) {
		if o {
			jumps++
		}
	}
	l.stop()
	<-l.done
	if l.err != nil {
		t.Errorf("run: %v", l.err)
	}
	if err := l.s.Close(context.Background()); err != nil {
		t.Errorf("close: %v", err)
	}
	t.Logf("%d probes, %d of them jumps, %d hit", armed, jumps, hit)
	if armed < n/2 || hit == 0 || jumps < armed*9/10 {
		t.Errorf("only %d armed, %d jumps, %d hit", armed, jumps, hit)
	}
	if after := sameText(t, pid); after != before {
		t.Errorf("the text is not what it was:\n%s\nbefore:\n%s", after, before)
	}
	if got := b.work(); got != want {
		t.Errorf("afterwards it printed %q, before %q", got, want)
	}
}

// sameText compares the text of a process with its files and lists them.
func sameText(t *testing.T, pid int) string {
	t.Helper()
	maps, err := symbols.ReadMaps(pid)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, m := range maps {
		if m.Exec && m.IsFile() {
			compareText(t, pid, m)
			fmt.Fprintf(&out, "%s %x\n", m.Path, m.Start)
		}
	}
	return out.String()
}

func libc(t *testing.T) string {
	t.Helper()
	return fixture.NeedFile(t, "/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib64/libc.so.6", "/lib64/libc.so.6", "/usr/lib/libc.so.6")
}

// TestBusyPython has a module of the standard library's own tests run over
// 1,000 probes on the interpreter.
func TestBusyPython(t *testing.T) {
	py := fixture.NeedTool(t, "python3")
	out, err := exec.Command(py, "-c", `import sys,sysconfig,os;l=os.path.join(sysconfig.get_config_var("LIBDIR") or "",sysconfig.get_config_var("LDLIBRARY") or "");print(os.path.realpath(sys.executable));print(l if l.endswith(".so") and os.path.exists(l) else "");import test.test_json`).Output()
	if err != nil {
		fixture.Missing(t, "python3 without its tests: %v", err)
	}
	lines := strings.Split(string(out), "\n")
	path := lines[0]
	if lines[1] != "" {
		path = lines[1]
	}
	b := startBusy(t, py, "-c", `
import sys, unittest, io, gc
import test.test_struct, test.test_heapq
print("ready", flush=True)
for line in sys.stdin:
    s = unittest.TestSuite([unittest.defaultTestLoader.loadTestsFromModule(test.test_heapq), unittest.defaultTestLoader.loadTestsFromModule(test.test_struct)])
    r = unittest.TextTestRunner(stream=io.StringIO()).run(s)
    print(r.testsRun, len(r.failures), len(r.errors), flush=True)
`)
	probeBusy(t, b, path, path, 1000)
}

// TestBusyNode: JavaScript that compiles, collects and sorts.
func TestBusyNode(t *testing.T) {
	node := fixture.NeedTool(t, "node")
	b := startBusy(t, node, "-e", `
console.log("ready");
require("readline").createInterface({input: process.stdin}).on("line", () => {
  let s = 0, a = [];
  for (let i = 0; i < 200000; i++) { a.push({k: (i * 7919) % 100003, t: "x" + i}); }
  a.sort((x, y) => x.k - y.k || x.t.localeCompare(y.t));
  for (const o of a) s = (s * 31 + o.k + o.t.length) % 1000000007;
  console.log(s + " " + JSON.stringify(a).length + " " + Buffer.alloc(1000).toString("hex").length);
});`)
	probeBusy(t, b, libc(t), libc(t), 1000)
}

// TestBusyJava: Java that is compiled while it runs, throws and collects.
func TestBusyJava(t *testing.T) {
	java := fixture.NeedTool(t, "java")
	src := filepath.Join(t.TempDir(), "Busy.java")
	if err := os.WriteFile(src, []byte(`
import java.util.*;
public class Busy {
  static int nulls(Object[] o) { int n = 0; for (Object x : o) try { n += x.hashCode() & 1; } catch (NullPointerException e) { n += 3; } return n; }
  public static void main(String[] a) throws Exception {
    var in = new Scanner(System.in);
    System.out.println("ready");
    while (in.hasNextLine()) {
      in.nextLine();
      long s = 0;
      Object[] o = new Object[1000];
      for (int i = 0; i < o.length; i += 2) o[i] = Integer.valueOf(i);
      for (int i = 0; i < 200; i++) s = s * 31 + nulls(o);
      var m = new TreeMap<String, Integer>();
      for (int i = 0; i < 100000; i++) m.put("k" + (i * 7919 % 100003), i);
      for (var e : m.entrySet()) s = s * 31 + e.getValue();
      System.out.println(s);
    }
  }
}`), 0o600); err != nil {
		t.Fatal(err)
	}
	b := startBusy(t, java, "-XX:+UseSerialGC", src)
	probeBusy(t, b, libc(t), libc(t), 1000)
}

// TestBusyRedis counts every function of redis-server while clients use it.
func TestBusyRedis(t *testing.T) {
	bench := fixture.NeedTool(t, "redis-benchmark")
	port, pid := startRedis(t)
	ask := func(q string) string { return askRedis(port, q) }
	before := sameText(t, pid)
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		t.Fatal(err)
	}
	l, _ := engage(t, pid, Options{CountOnly: true})
	start := time.Now()
	armed := armEach(t, l.s, functionsOf(t, path, path, 100_000))
	t.Logf("%d armed in %v", armed, time.Since(start))
	out, err := exec.Command(bench, "-p", port, "-n", fmt.Sprint(full(20_000, 400_000)), "-c", "20", "-q", "-t", "set,get,lpush,lrange_100,hset,zadd").CombinedOutput()
	if err != nil || regexp.MustCompile(`(?i)error`).Match(out) {
		t.Errorf("redis-benchmark: %v\n%s", err, out)
	}
	for _, q := range [][2]string{{"SET n 41", "+OK"}, {"INCR n", ":42"}, {"EVAL \"return 6*7\" 0", ":42"}, {"DEBUG SLEEP 0", ""}} {
		if got := ask(q[0]); q[1] != "" && got != q[1] {
			t.Errorf("%s: %s, want %s", q[0], got, q[1])
		}
	}
	jumps, hit := 0, 0
	for _, o := range jumpsOf(t, l) {
		if o {
			jumps++
		}
	}
	for _, st := range l.s.Stats() {
		if st.Hits > 0 {
			hit++
		}
	}
	l.stop()
	<-l.done
	if err := l.s.Close(context.Background()); err != nil || l.err != nil {
		t.Errorf("close: %v, run: %v", err, l.err)
	}
	t.Logf("%d probes, %d jumps, %d hit", armed, jumps, hit)
	if jumps < armed*95/100 || hit < 20 {
		t.Errorf("only %d of %d are jumps, %d were hit", jumps, armed, hit)
	}
	if after := sameText(t, pid); after != before {
		t.Errorf("the text is not what it was")
	}
	if got := ask("INCR n"); got != ":43" {
		t.Errorf("afterwards: %s", got)
	}
}

// startRedis starts a server that keeps nothing.
func startRedis(t *testing.T) (port string, pid int) {
	t.Helper()
	server := fixture.NeedTool(t, "redis-server")
	sock, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port = fmt.Sprint(sock.Addr().(*net.TCPAddr).Port)
	_ = sock.Close()
	cmd := exec.Command(server, "--port", port, "--save", "", "--appendonly", "no", "--dir", t.TempDir())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if !waitUntil(func() bool { return askRedis(port, "PING") == "+PONG" }) {
		t.Fatalf("redis-server does not answer: %s", askRedis(port, "PING"))
	}
	return port, cmd.Process.Pid
}

func askRedis(port, q string) string {
	c, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patient))
	if _, err := fmt.Fprintf(c, "%s\r\n", q); err != nil {
		return err.Error()
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(line)
}
