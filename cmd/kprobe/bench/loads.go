package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"kprobe/internal/procfs"
	"kprobe/symbols"
)

// errNotInstalled is of a program that is not there to be measured.
var errNotInstalled = errors.New("it is not installed")

// load is a real program, and what it is to do.
type load struct {
	name string
	// library begins the name of the file that has the program's functions, if that isn't
	// the program's own.
	library string
	works   []piece
	start   func(ctx context.Context, dir string) (*running, error)
}

// piece is one kind of work: its name for running.work, and what a table says.
type piece struct{ name, what string }

// running is a program that was started.
type running struct {
	pid  int
	cmd  *exec.Cmd
	work func(name string) (ops int, err error) // has a piece of work done
}

func (r *running) end() {
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait()
}

// loads are the programs that are measured.
func loads() []load {
	once := []piece{{name: "work"}}
	told := func(what string) []piece { return []piece{{once[0].name, what}} }
	return []load{
		{name: "redis-server", works: []piece{{"set", "redis-benchmark -t set -P 16 -c 20"}, {"get", "redis-benchmark -t get -P 16 -c 20"}}, start: startRedis},
		{name: "python3", library: "libpython", works: told("calls, objects, JSON"), start: tellingFile("python3", "work.py", pythonWork)},
		{name: "node", library: "libnode", works: told("closures, objects, JSON"), start: tellingFile("node", "work.js", nodeWork)},
		{name: "sqlite3", library: "libsqlite3", works: told("inserts, sums, an index"), start: startSQLite},
	}
}

// redisRequests is how many requests redis-benchmark makes at a time.
const redisRequests = 50000

// startRedis starts a server of the loopback's that keeps nothing.
func startRedis(ctx context.Context, dir string) (*running, error) {
	server, err := installed("redis-server")
	if err != nil {
		return nil, err
	}
	client, err := installed("redis-benchmark")
	if err != nil {
		return nil, fmt.Errorf("redis-benchmark: %w", err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("find a port for it: %w", err)
	}
	port := strconv.Itoa(free.Addr().(*net.TCPAddr).Port)
	_ = free.Close()
	cmd := exec.Command(server, "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--dir", dir)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start it: %w", err)
	}
	r := &running{pid: cmd.Process.Pid, cmd: cmd}
	r.work = func(name string) (int, error) {
		out, err := exec.CommandContext(ctx, client, "-p", port, "-t", name, "-P", "16", "-c", "20", "-n", strconv.Itoa(redisRequests), "-q").CombinedOutput()
		if err != nil {
			return 0, because(fmt.Errorf("redis-benchmark: %w", err), string(out))
		}
		return redisRequests, nil
	}
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			_ = c.Close()
			return r, nil
		}
		if time.Now().After(end) {
			r.end()
			return nil, fmt.Errorf("wait until it listens: %w", err)
		}
	}
}

// Work that a line on standard input asks for, and a line on standard output ends.
const (
	pythonWork = `import json, sys
class Point:
    def __init__(self, x, y):
        self.x, self.y = x, y
    def __add__(self, o):
        return Point(self.x + o.x, self.y + o.y)
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
def once():
    at = Point(0, 0)
    for i in range(2000):
        at = at + Point(i, -i)
    words = sorted(("%x" % (i * 2654435761 % 4093) for i in range(1000)), key=len)
    text = json.dumps({w: [i, fib(6)] for i, w in enumerate(words)})
    return fib(14) + at.x + len(json.loads(text))
for _ in sys.stdin:
    once()
    print("done", flush=True)
`
	nodeWork = `class Point {
  constructor(x, y) { this.x = x; this.y = y; }
  add(o) { return new Point(this.x + o.x, this.y + o.y); }
}
function once() {
  let at = new Point(0, 0);
  for (let i = 0; i < 1000; i++) at = at.add(new Point(i, -i));
  const words = Array.from({ length: 100 }, (_, i) => (i * 2654435761 % 4093).toString(16)).sort();
  const map = new Map(words.map((w, i) => [w, { i, w, s: w.replace(/[0-4]/g, 'x') }]));
  const text = JSON.stringify([...map.values()]);
  return at.x + JSON.parse(text).length + Buffer.from(text).toString('base64').length;
}
process.stdin.on('data', (d) => {
  for (const c of d.toString()) if (c === '\n') { once(); process.stdout.write('done\n'); }
});
`
	sqliteWork = `begin; with recursive n(i) as (select 1 union all select i + 1 from n where i < 1000) insert into t select i, printf('%08x', i * 2654435761) from n; ` +
		`create index s on t(s); select count(*), sum(length(s)) from t where s > '5'; select max(s) from t group by i % 10; delete from t; drop index s; commit;` + "\n.print done\n"
)

// tellingFile starts a program that runs a script from a file.
func tellingFile(name, file, script string) func(context.Context, string) (*running, error) {
	return func(_ context.Context, dir string) (*running, error) {
		path := filepath.Join(dir, file)
		if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
			return nil, fmt.Errorf("write its script: %w", err)
		}
		return telling(name, "\n", path)
	}
}

func startSQLite(context.Context, string) (*running, error) {
	return telling("sqlite3", sqliteWork, "-batch", "-cmd", "create table t(i integer, s text)", ":memory:")
}

// telling starts a program that is told by a text on its standard input to do its work
// once, and says "done" then.
func telling(name, tell string, args ...string) (*running, error) {
	path, err := installed(name)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, args...)
	to, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	from, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	said := &tail{}
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start it: %w", err)
	}
	r := &running{pid: cmd.Process.Pid, cmd: cmd}
	lines := bufio.NewScanner(from)
	r.work = func(string) (int, error) {
		if _, err := io.WriteString(to, tell); err != nil && !errors.Is(err, syscall.EPIPE) { // it has ended: it is heard out
			return 0, fmt.Errorf("tell it to work: %w", err)
		}
		for lines.Scan() {
			if lines.Text() == "done" {
				return 1, nil
			}
		}
		if err := lines.Err(); err != nil {
			return 0, fmt.Errorf("wait for its work: %w", err)
		}
		err := cmd.Wait()
		if err == nil {
			err = errors.New("it has ended")
		}
		return 0, because(err, said.String())
	}
	if _, err := r.work(""); err != nil { // it is what it is to be: scripts may start it
		r.end()
		return nil, err
	}
	return r, nil
}

// tail keeps the end of what is written to it.
type tail struct{ b []byte }

// Write implements io.Writer.
func (t *tail) Write(b []byte) (int, error) {
	t.b = append(t.b, b...)
	if most := 4096; len(t.b) > most {
		t.b = t.b[len(t.b)-most:]
	}
	return len(b), nil
}

// String is the end.
func (t *tail) String() string { return string(t.b) }

// installed finds a program, rather where the system keeps it.
func installed(name string) (string, error) {
	if path, err := exec.LookPath(filepath.Join("/usr/bin", name)); err == nil {
		return path, nil
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", errNotInstalled
	}
	return path, nil
}

// moduleOf is the name, for definitions, of the file that has a program's functions: of
// the library whose name begins so, if the program has that mapped, or its own.
func moduleOf(pid int, library string) (string, error) {
	maps, err := symbols.ReadMaps(pid)
	if err != nil {
		return "", err
	}
	for _, m := range maps {
		if base := filepath.Base(m.Path); library != "" && strings.HasPrefix(base, library) {
			return base, nil
		}
	}
	path, err := os.Readlink(procfs.Process(pid).Path("exe"))
	if err != nil {
		return "", fmt.Errorf("find its file: %w", err)
	}
	return filepath.Base(path), nil
}
