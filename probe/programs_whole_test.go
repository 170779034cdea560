package probe

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"kprobe/internal/fixture"
)

// holdings is what a process holds that kprobe must leave as it was: its
// descriptors, its children, and how many of its threads are stopped.
func holdings(t *testing.T, pid int) string {
	t.Helper()
	var out []string
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, e.Name()))
		out = append(out, e.Name()+" "+to)
	}
	slices.Sort(out)
	children, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, c := range children {
		if b, _ := os.ReadFile(c); len(b) > 0 {
			out = append(out, "child "+string(b))
		}
	}
	stopped, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, s := range stopped {
		if b, _ := os.ReadFile(s); bytes.Contains(b, []byte("State:\tt")) || bytes.Contains(b, []byte("State:\tT")) {
			out = append(out, "stopped "+s)
		}
	}
	if traced(pid) {
		out = append(out, "traced")
	}
	return strings.Join(out, "\n")
}

// writes counts the lines of an event that name this value.
func writes(lines []string, event, value string) (n int) {
	for _, l := range lines {
		if strings.HasPrefix(l, event+" ") && strings.Contains(l+" ", value+" ") {
			n++
		}
	}
	return n
}

const (
	thirteen = "thirteen byte"

	pythonWrites = `
import os, sys, threading
null = os.open("/dev/null", os.O_WRONLY)
print("ready", flush=True)
def run(sums, i):
    for n in range(100): sums[i] += os.write(null, b"thirteen byte")
for line in sys.stdin:
    sums = [0] * 8
    threads = [threading.Thread(target=run, args=(sums, i)) for i in range(8)]
    for t in threads: t.start()
    for t in threads: t.join()
    print("done", sum(sums), flush=True)
`
	nodeWrites = `
const fs = require("fs"), out = fs.openSync("/dev/null", "w");
console.log("ready");
require("readline").createInterface({input: process.stdin}).on("line", () => {
  let sum = 0;
  for (let i = 0; i < 800; i++) sum += fs.writeSync(out, "thirteen byte");
  console.log("done " + sum);
});`
	javaWrites = `
import java.io.*;
import java.util.*;
public class Writes {
  public static void main(String[] a) throws Exception {
    var out = new FileOutputStream("/dev/null");
    byte[] b = "thirteen byte".getBytes();
    var in = new Scanner(System.in);
    System.out.println("ready");
    while (in.hasNextLine()) {
      in.nextLine();
      long[] sum = new long[8];
      Thread[] ts = new Thread[8];
      for (int i = 0; i < 8; i++) { int k = i; ts[i] = new Thread(() -> { try { for (int n = 0; n < 100; n++) { out.write(b); sum[k] += b.length; } } catch (IOException e) { sum[k] = -1; } }); ts[i].start(); }
      for (Thread t : ts) t.join();
      System.out.println("done " + Arrays.stream(sum).sum());
    }
  }
}`
)

// TestProgramsWrites has interpreters make 800 writes of thirteen bytes each
// round: entry and return are seen once for each, the program prints the same,
// and is left as it was found.
func TestProgramsWrites(t *testing.T) {
	java := filepath.Join(t.TempDir(), "Writes.java")
	if err := os.WriteFile(java, []byte(javaWrites), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{"python3": {"-c", pythonWrites}, "node": {"-e", nodeWrites}, "java": {"-XX:+UseSerialGC", java}} {
		t.Run(name, func(t *testing.T) {
			b := startBusy(t, fixture.NeedTool(t, name), args...)
			want := b.work()
			if want != fmt.Sprint("done ", 800*len(thirteen)) {
				t.Fatalf("it printed %q", want)
			}
			pid := b.cmd.Process.Pid
			before, text := holdings(t, pid), sameText(t, pid)
			for _, o := range []Options{{}, {NoOptimize: true}} {
				l := attach(t, pid, o, "p:in libc:write fd=$arg1:s32 n=$arg3", "r64:out libc:write v=$retval:s64")
				if got := b.work(); got != want {
					t.Errorf("probed, it printed %q, otherwise %q", got, want)
				}
				l.stop()
				<-l.done
				if err := l.s.Close(context.Background()); err != nil || l.err != nil {
					t.Errorf("close: %v, run: %v", err, l.err)
				}
				lines := l.sink.all()
				in, out := writes(lines, "in", fmt.Sprintf("n=%#x", len(thirteen))), writes(lines, "out", fmt.Sprintf("v=%d", len(thirteen)))
				if in != 800 || out != 800 {
					t.Errorf("NoOptimize %v: %d entries and %d returns of 800 writes", o.NoOptimize, in, out)
				}
				for _, st := range l.sum.Stats {
					if st.Missed != 0 || st.Lost != 0 {
						t.Errorf("%s: %d missed, %d lost", st.Event.Name, st.Missed, st.Lost)
					}
				}
			}
			if after := sameText(t, pid); after != text {
				t.Errorf("its text is not what it was:\n%s\nbefore:\n%s", after, text)
			}
			if after := holdings(t, pid); after != before {
				t.Errorf("it holds\n%s\nbefore\n%s", after, before)
			}
			if got := b.work(); got != want {
				t.Errorf("afterwards it printed %q, before %q", got, want)
			}
		})
	}
}

// TestProgramsLs starts ls under probes: it prints the same.
func TestProgramsLs(t *testing.T) {
	ls := fixture.NeedTool(t, "ls")
	args := []string{"ls", "-lR", "--time-style=+", "/usr/share/zoneinfo"}
	cmd := exec.Command(ls, args[1:]...)
	want, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []Options{{}, {NoOptimize: true}} {
		out := newFile(t)
		o.CountOnly, o.Log = true, testLog(t)
		s, err := Start(t.Context(), Command{Path: ls, Args: args, Stdout: out}, o)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Arm(t.Context(), parseDefs(t, "p:in libc:readdir", "r:out libc:readdir v=$retval", "p:w libc:fwrite_unlocked")); err != nil {
			t.Fatal(err)
		}
		sum, err := s.Run(t.Context(), nil)
		if err != nil || !sum.HasStatus || sum.Status.ExitStatus() != 0 {
			t.Errorf("run: %v, status %v", err, sum.Status)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		got, err := os.ReadFile(out.Name())
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("NoOptimize %v: it printed %d bytes, otherwise %d", o.NoOptimize, len(got), len(want))
		}
		hits := map[string]uint64{}
		for _, st := range s.Stats() {
			hits[st.Event.Name] = st.Hits
		}
		if hits["in"] == 0 || hits["in"] != hits["out"] || hits["w"] == 0 {
			t.Errorf("NoOptimize %v: %v", o.NoOptimize, hits)
		}
	}
}

// TestProgramsHTTP traces a Go server's own function, its entry and its
// exits, while eight clients ask.
func TestProgramsHTTP(t *testing.T) {
	prog := fixture.Build(t, "programs_http.go")
	for _, o := range []Options{{}, {NoOptimize: true}} {
		sub := startServer(t, prog)
		before := holdings(t, sub.pid())
		l := attach(t, sub.pid(), o, "p:in main.answer n=%bx", "r200:out main.answer")
		var wg sync.WaitGroup
		for c := range 8 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				client := &http.Client{Transport: &http.Transport{}}
				defer client.CloseIdleConnections()
				for i := range 50 {
					path := fmt.Sprintf("/%d/%d", c, i)
					r, err := client.Get("http://" + sub.addr + path)
					if err != nil {
						t.Error(err)
						return
					}
					b, err := io.ReadAll(r.Body)
					_ = r.Body.Close()
					if want := fmt.Sprintf("%s has %d letters", path, len(path)); err != nil || string(b) != want {
						t.Errorf("it answered %q (%v), want %q", b, err, want)
					}
				}
			}()
		}
		wg.Wait()
		l.finish(sub.pid())
		for _, ev := range []string{"in", "out"} {
			if st := l.stat(ev); st.Hits != 400 || st.Missed != 0 || st.Lost != 0 {
				t.Errorf("NoOptimize %v, %s: %d hits, %d missed, %d lost; want 400, 0 and 0", o.NoOptimize, ev, st.Hits, st.Missed, st.Lost)
			}
		}
		if !waitUntil(func() bool { return holdings(t, sub.pid()) == before }) {
			t.Errorf("it holds\n%s\nbefore\n%s", holdings(t, sub.pid()), before)
		}
		_ = sub.in.Close()
		sub.expect("done 400")
	}
}

type server struct {
	*subject
	addr string
}

func startServer(t *testing.T, path string) *server {
	t.Helper()
	b := &server{subject: &subject{t: t, cmd: exec.Command(path)}}
	in, err := b.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := b.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.cmd.Process.Kill(); _ = b.cmd.Wait() })
	b.in, b.out = in, bufio.NewReader(out)
	b.addr = strings.TrimPrefix(b.expect("ready "), "ready ")
	return b
}

// TestProgramsRedis counts a server's answers to one client.
func TestProgramsRedis(t *testing.T) {
	port, pid := startRedis(t)
	c, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	in := bufio.NewReader(c)
	ask := func(request, answer string) {
		t.Helper()
		got := make([]byte, len(answer))
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(in, got); err != nil || string(got) != answer {
			t.Fatalf("%q, %v", got, err)
		}
	}
	ping := func() { t.Helper(); ask("PING\r\n", "+PONG\r\n") }
	ping()
	before := holdings(t, pid)
	for _, o := range []Options{{}, {NoOptimize: true}} {
		l := attach(t, pid, o, "p:in libc:write n=$arg3 if n == 7", "r:out libc:write v=$retval if v == 7")
		for range 500 {
			ping()
		}
		// An answer is read before its write returns: one of another length
		// comes only when all of those counted have.
		ask("ECHO hello\r\n", "$5\r\nhello\r\n")
		l.finish(pid)
		for _, ev := range []string{"in", "out"} {
			if st := l.stat(ev); st.Recorded != 500 || st.Missed != 0 {
				t.Errorf("NoOptimize %v, %s: %d of 500 answers, %d missed", o.NoOptimize, ev, st.Recorded, st.Missed)
			}
		}
	}
	ping()
	if after := holdings(t, pid); after != before {
		t.Errorf("it holds\n%s\nbefore\n%s", after, before)
	}
}
