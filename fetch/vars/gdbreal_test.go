package vars

import (
	"bufio"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/symbols"
	"kprobe/symbols/debuginfo"
)

// A real is a program to compare with gdb, as it runs: TestRealAgainstGDB.
type real struct {
	command []string
	module  string // the file whose functions are looked at
	funcs   *regexp.Regexp
	limit   int // functions
	lines   int // of each function
	rounds  int
	seed    int64
	raw     bool // unoptimized: gdb can't tell at the function's entry
}

// liveFrame is a frame that is inlined at a stop, or the one around those.
type liveFrame struct {
	Func   string
	Inline bool
	Vars   map[string]*seen
}

// liveStop is a stop of a program that stands still meanwhile (testdata/dwarf_live.py).
type liveStop struct {
	stop
	PID    int
	Return bool
	Frames []liveFrame
	file   *os.File
}

func (s *liveStop) ReadMemory(b []byte, at symbols.Addr) (int, error) {
	if at >= 1<<47 {
		return 0, syscall.EFAULT
	}
	return s.file.ReadAt(b, int64(at))
}

// rowsOf are the addresses of a function's entry and of up to n of its lines.
func rowsOf(m *symbols.Module, fn symbols.Func, n int, rng *rand.Rand) (out []symbols.Vaddr) {
	_ = m.File.ReadDebug(func(d *debuginfo.Data) error {
		u := d.UnitAt(uint64(fn.Start))
		if u == nil {
			return nil
		}
		t := u.Lines()
		if t == nil {
			return nil
		}
		out = append(out, fn.Start)
		var rows []symbols.Vaddr
		for _, r := range t.Rows {
			if v := symbols.Vaddr(r.Addr); r.Stmt && !r.End && v > fn.Start && v < fn.End {
				rows = append(rows, v)
			}
		}
		slices.Sort(rows)
		rows = slices.Compact(rows)
		rng.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
		out = append(out, rows[:min(n, len(rows))]...)
		return nil
	})
	return out
}

// endOf is where a function's prologue ends.
func endOf(t *testing.T, space *symbols.Space, fn symbols.Func) (end symbols.Vaddr) {
	t.Helper()
	sites, err := space.Resolve(symbols.Place{Kind: symbols.PlaceAddr, Value: uint64(fn.Start)})
	if err != nil {
		t.Fatal(err)
	}
	end = fn.Start
	_ = At(space, sites[0]).read(func(f *frame) error {
		end = symbols.Vaddr(f.prologueEnd(f.pc))
		return nil
	})
	return end
}

// runLive lets gdb run a program, and asks about each stop. The answer "finish" has gdb stop
// again at the function's return; "stop" ends the program.
func runLive(t *testing.T, r real, at []symbols.Vaddr, ask func(*liveStop) string) {
	t.Helper()
	dir := t.TempDir()
	var list strings.Builder
	for _, v := range at {
		fmt.Fprintf(&list, "%x\n", uint64(v))
	}
	stops, out, ack := filepath.Join(dir, "stops"), filepath.Join(dir, "out"), filepath.Join(dir, "ack")
	if err := os.WriteFile(stops, []byte(list.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{out, ack} {
		if err := syscall.Mkfifo(p, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f, err := elf.Open(r.module)
	if err != nil {
		t.Fatal(err)
	}
	pie := "0"
	if f.Type == elf.ET_DYN {
		pie = "1"
	}
	f.Close()
	cmd := exec.Command(fixture.NeedTool(t, "gdb"), []string{"-nx", "-batch", "-x", filepath.Join(fixture.Root(), "testdata", "dwarf_live.py"), r.command[0]}...)
	cmd.Env = append(os.Environ(), "DUMP_STOPS="+stops, "DUMP_OUT="+out, "DUMP_ACK="+ack, "DUMP_PIE="+pie, "DUMP_MODULE="+r.module,
		"DUMP_ROUNDS="+strconv.Itoa(r.rounds), "DUMP_ARGS="+strings.Join(r.command[1:], " "), "DEBUGINFOD_URLS=")
	text, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	cmd.Stdout, cmd.Stderr = text, text
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// Both ends are opened here, so that neither open waits for a gdb that has ended.
	from, err := os.OpenFile(out, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.OpenFile(ack, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	go func() {
		_ = cmd.Wait()
		_, _ = io.WriteString(from, "{}\n")
	}()
	n := 0
	for d := json.NewDecoder(bufio.NewReader(from)); ; n++ {
		s := &liveStop{}
		if err := d.Decode(s); err != nil {
			t.Fatal(err)
		}
		if s.PID == 0 {
			break
		}
		if s.file, err = os.Open(fmt.Sprintf("/proc/%d/mem", s.PID)); err != nil {
			t.Fatal(err)
		}
		answer := ask(s)
		s.file.Close()
		fmt.Fprintln(to, answer)
	}
	b, _ := os.ReadFile(text.Name())
	if t.Logf("%d stops; gdb and the program say:\n%s", n, b[max(0, len(b)-1500):]); n == 0 {
		t.Fatal("gdb saw no stop")
	}
}

// evaluateLive is evaluate, of a program that stands still.
func evaluateLive(s *liveStop, v fetch.Variable) (fetch.Type, fetch.Value, error) {
	d, err := fetch.Parse("p f x=v")
	if err != nil {
		return fetch.Type{}, fetch.Value{}, err
	}
	v.AtReturn = false
	prog, err := d.Compile(oneVariable{v})
	if err != nil {
		return fetch.Type{}, fetch.Value{}, err
	}
	ctx := s.context()
	ctx.Mem = s
	rec, ok := prog.Eval(ctx, nil)
	if !ok {
		return fetch.Type{}, fetch.Value{}, errors.New("not recorded")
	}
	vals, err := prog.Decode(rec, nil)
	if err != nil {
		return fetch.Type{}, fetch.Value{}, err
	}
	return prog.Fields()[0].Type, vals[0], nil
}

// setting is a number of the environment, or another if it has none of this name.
func setting(name string, or int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return or
}

// TestRealAgainstGDB compares all variables that gdb has with what is recorded, at entries,
// lines and returns of functions of a program as it runs: the command KPROBE_TEST_REAL.
// KPROBE_TEST_MODULE is the file whose functions are looked at, if it isn't the program's;
// KPROBE_TEST_FUNCS a pattern for their names, KPROBE_TEST_LIMIT and KPROBE_TEST_LINES how many
// functions, and lines of each, KPROBE_TEST_SEED which, KPROBE_TEST_RAW=1 says that they are
// not optimized.
func TestRealAgainstGDB(t *testing.T) {
	command := strings.Fields(os.Getenv("KPROBE_TEST_REAL"))
	if len(command) == 0 {
		command = []string{fixture.Build(t, "values_types.c", "-g", "-O2")}
	}
	r := real{command: command, module: command[0], funcs: regexp.MustCompile(os.Getenv("KPROBE_TEST_FUNCS")), limit: setting("KPROBE_TEST_LIMIT", 400),
		lines: setting("KPROBE_TEST_LINES", 4), rounds: setting("KPROBE_TEST_ROUNDS", 1), seed: int64(setting("KPROBE_TEST_SEED", 1)), raw: os.Getenv("KPROBE_TEST_RAW") == "1"}
	if m := os.Getenv("KPROBE_TEST_MODULE"); m != "" {
		r.module = m
	}
	space, err := symbols.OpenFileSpace(r.module)
	if err != nil {
		t.Fatal(err)
	}
	m := space.Modules()[0]
	rng := rand.New(rand.NewSource(r.seed))
	var fns []symbols.Func
	for _, fn := range m.File.Funcs() {
		if fn.End > fn.Start && r.funcs.MatchString(fn.Symbol.Name) {
			fns = append(fns, fn)
		}
	}
	rng.Shuffle(len(fns), func(i, j int) { fns[i], fns[j] = fns[j], fns[i] })
	var at []symbols.Vaddr
	taken := 0
	for _, fn := range fns {
		if taken >= r.limit {
			break
		}
		if rows := rowsOf(m, fn, r.lines, rng); rows != nil {
			at = append(at, rows...)
			if r.raw {
				at = append(at, endOf(t, space, fn))
			}
			taken++
		}
	}
	slices.Sort(at)
	at = slices.Compact(at)
	o := &outcome{missing: map[string]int{}, example: map[string]string{}}
	n := 0
	runLive(t, r, at, func(s *liveStop) string {
		o.compare(t, space, s, r.raw)
		n++
		if !s.Return && isEntry(space, &s.stop) && n%2 == 0 {
			return "finish"
		}
		return ""
	})
	t.Logf("%d places of %d functions, %d stops", len(at), taken, n)
	o.report(t, filepath.Base(r.module))
	if o.equal == 0 {
		t.Error("nothing was compared")
	}
}
