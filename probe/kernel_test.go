package probe

import (
	"context"
	"debug/elf"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"kprobe/internal/fixture"
)

// tracefs is an instance of the running kernel's tracing with events of its
// own group.
type tracefs struct {
	t     *testing.T
	dir   string // of the instance
	top   string
	group string
	defs  []string
}

// openTracefs needs root and a kernel with uprobe_events. What it makes is
// named after this process and taken out at the end; what an earlier test left
// that was killed is taken out first.
func openTracefs(t *testing.T) *tracefs {
	for _, top := range []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"} {
		f, err := os.OpenFile(filepath.Join(top, "uprobe_events"), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			continue
		}
		f.Close()
		k := &tracefs{t: t, top: top, group: fmt.Sprintf("kprobetest%d", os.Getpid())}
		k.sweep()
		k.dir = filepath.Join(top, "instances", k.group)
		if err := os.Mkdir(k.dir, 0o755); err != nil {
			fixture.Missing(t, "an instance in %s (%v)", top, err)
		}
		t.Cleanup(k.remove)
		return k
	}
	fixture.Missing(t, "a tracefs with uprobe_events that may be written")
	return nil
}

func (k *tracefs) append(file, text string) error {
	f, err := os.OpenFile(filepath.Join(k.top, file), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(text + "\n")
	return err
}

func (k *tracefs) set(file, text string) {
	k.t.Helper()
	if err := os.WriteFile(filepath.Join(k.dir, file), []byte(text), 0); err != nil {
		k.t.Fatal(err)
	}
}

func (k *tracefs) remove() {
	_ = os.WriteFile(filepath.Join(k.dir, "events", k.group, "enable"), []byte("0"), 0)
	if err := os.Remove(k.dir); err != nil {
		k.t.Error(err)
	}
	if len(k.defs) > 0 {
		if err := k.append("uprobe_events", strings.Join(k.defs, "\n")); err != nil {
			k.t.Errorf("take the kernel's events out: %v", err)
		}
	}
}

// sweep takes out what tests left whose process is gone.
func (k *tracefs) sweep() {
	left, _ := filepath.Glob(filepath.Join(k.top, "instances", "kprobetest*"))
	events, _ := filepath.Glob(filepath.Join(k.top, "events", "kprobetest*"))
	for _, dir := range append(left, events...) {
		pid, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), "kprobetest"))
		if err != nil || pid != os.Getpid() && syscall.Kill(pid, 0) == nil {
			continue // whoever has this process's number now has ended
		}
		_ = os.WriteFile(filepath.Join(dir, "events", filepath.Base(dir), "enable"), []byte("0"), 0)
		_ = os.Remove(dir)
	}
	for _, dir := range events {
		group := filepath.Base(dir)
		if pid, err := strconv.Atoi(strings.TrimPrefix(group, "kprobetest")); err != nil || pid != os.Getpid() && syscall.Kill(pid, 0) == nil {
			continue
		}
		names, _ := os.ReadDir(dir)
		for _, e := range names {
			if e.IsDir() {
				_ = k.append("uprobe_events", "-:"+group+"/"+e.Name())
			}
		}
	}
}

// ownCopy copies a program into the test's folder: the kernel puts its probes
// into files, where every process that runs the file meets them.
func ownCopy(t *testing.T, prog string) string {
	t.Helper()
	text, err := os.ReadFile(prog)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), filepath.Base(prog))
	if err := os.WriteFile(path, text, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// add makes events; the kernel must take them all.
func (k *tracefs) add(defs []string) {
	k.t.Helper()
	for _, d := range defs {
		if err := k.append("uprobe_events", d); err != nil {
			log, _ := os.ReadFile(filepath.Join(k.top, "error_log"))
			k.t.Fatalf("%s: the kernel refuses it: %v\n%s", d, err, log)
		}
		name := strings.Fields(d)[0]
		k.defs = append(k.defs, "-:"+name[strings.Index(name, ":")+1:])
	}
}

// hit is what both print of a hit, by event.
type hitLines map[string][]string

var kernelLine = regexp.MustCompile(`: (e\d+): \((.*?)\)(.*)$`)

// read parses the instance's trace.
func (k *tracefs) read() hitLines {
	text, err := os.ReadFile(filepath.Join(k.dir, "trace"))
	if err != nil {
		k.t.Fatal(err)
	}
	out := hitLines{}
	for line := range strings.Lines(string(text)) {
		if m := kernelLine.FindStringSubmatch(strings.TrimRight(line, "\n")); m != nil {
			// It prints a NUL as it is.
			out[m[1]] = append(out[m[1]], strings.ReplaceAll("("+m[2]+")"+m[3], "'\x00'", `'\x00'`))
		} else if !strings.HasPrefix(line, "#") {
			k.t.Errorf("a line of the kernel's that can't be parsed: %q", line)
		}
	}
	return out
}

// hits reads the counts of the events in a file from uprobe_profile, which lists
// everybody's.
func (k *tracefs) hits(prog string) map[string]uint64 {
	text, err := os.ReadFile(filepath.Join(k.top, "uprobe_profile"))
	if err != nil {
		k.t.Fatal(err)
	}
	out := map[string]uint64{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == prog {
			out[f[1]], _ = strconv.ParseUint(f[2], 10, 64)
		}
	}
	return out
}

// kernelSink prints hits as the kernel does for processes: bare addresses.
type kernelSink struct {
	collector
	lines hitLines
}

func (s *kernelSink) Hit(h *Hit) error {
	n := len(s.collector.lines)
	h2 := *h
	h2.RetIP = 0
	if err := s.collector.Hit(&h2); err != nil {
		return err
	}
	text := strings.TrimPrefix(s.collector.lines[n], h.Event.Name)
	at := fmt.Sprintf("(%#x)", uint64(h.IP))
	if h.RetIP != 0 {
		at = fmt.Sprintf("(%#x <- %#x)", uint64(h.RetIP), uint64(h.IP))
	}
	s.lines[h.Event.Name] = append(s.lines[h.Event.Name], at+text)
	return nil
}

// places of probe_kernel, by file offset.
func fileOffsets(t *testing.T, path string) map[string]uint64 {
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	syms, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]uint64{}
	for _, s := range syms {
		for _, p := range f.Progs {
			if p.Type == elf.PT_LOAD && s.Value >= p.Vaddr && s.Value < p.Vaddr+p.Filesz {
				out[s.Name] = s.Value - p.Vaddr + p.Off
			}
		}
	}
	return out
}

// randomDefinition makes a definition that the kernel takes too. Numbers are
// read only where memory is readable: the kernel prints what was in its buffer
// where it is not.
func randomDefinition(r *rand.Rand, group string, i int, path string, offs map[string]uint64) string {
	pick := func(s ...string) string { return s[r.IntN(len(s))] }
	num := func(s string, n int) string { return fmt.Sprintf(s, r.IntN(n)) }
	number := func() string {
		return pick("u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "x8", "x16", "x32", "x64",
			"b3@2/8", "b1@0/8", "b11@5/16", "b32@0/32", "b7@20/32", "b40@12/64", "b1@63/64")
	}
	reg := func() string {
		return pick("%ax", "%bx", "%cx", "%dx", "%si", "%di", "%bp", "%sp", "%r8", "%r9", "%r10", "%r11", "%r12", "%r13", "%r14", "%r15", "%ip", "%flags", "%cs", "%ss")
	}
	// rec is an expression for a struct's address: %di, or along next and self.
	var rec func(depth int) string
	rec = func(depth int) string {
		if depth == 0 || r.IntN(2) == 0 {
			return "%di"
		}
		return pick("+0(", "+176(", "+u0(", "+0xb0(") + rec(depth-1) + ")"
	}
	number1 := func() string {
		switch r.IntN(9) {
		case 0:
			return reg()
		case 1:
			return "$stack"
		case 2:
			return num("$stack%d", 14)
		case 3:
			return pick(`\5`, `\-1`, `\0x1234`, `\+77`)
		case 4:
			return fmt.Sprintf("@+%#x", offs["file_data"]+uint64(r.IntN(3)*8))
		default:
			return num("+%d(", 168) + rec(5) + ")"
		}
	}
	text := func() string {
		switch r.IntN(8) {
		case 0:
			return "+0(%r8)"
		case 1:
			return "+0(%r10)"
		case 2:
			return num("+%d(", 4) + "+8(" + rec(3) + "))"
		case 3:
			return "+152(" + rec(3) + ")"
		case 4:
			return fmt.Sprintf("@+%#x", offs["file_text"]+uint64(r.IntN(8)))
		case 5:
			return "+0(+144(" + rec(2) + "))" // can't be read
		case 6:
			return num("+0(+%d(%%r9))", 1)
		default:
			return "+0(+" + pick("16", "24", "32", "40") + "(" + rec(2) + "))"
		}
	}
	kind, at := "p", pick("target", "target", "target_mid", "after_target")
	if r.IntN(3) == 0 {
		kind, at = "r", "target"
	}
	words := []string{fmt.Sprintf("%s:%s/e%d %s:%#x", kind, group, i, path, offs[at])}
	for range 1 + r.IntN(6) {
		w := ""
		switch k := r.IntN(12); {
		case k == 0:
			// Not an immediate string: the kernel reads it as memory of the process.
			w = pick("$comm", "$comm:string")
		case k == 1 && kind == "r":
			w = "$retval" + pick("", ":u8", ":s64", ":x32")
		case k <= 3:
			w = text() + pick(":string", ":ustring")
		case k == 4:
			w = "+16(" + rec(3) + ")" + pick(":string[1]", ":string[4]", ":ustring[2]")
		case k == 5:
			w = num("+%d(", 80) + rec(3) + "):" + number() + "[" + strconv.Itoa(1+r.IntN(8)) + "]"
		case k == 6:
			w = pick(reg(), num("+%d(%%r10):char", 4), "+0(%r10):char[4]", "+152("+rec(2)+"):char[6]")
		default:
			w = number1() + ":" + number()
		}
		if r.IntN(2) == 0 {
			w = fmt.Sprintf("v%d=%s", len(words), w)
		}
		words = append(words, w)
	}
	return strings.Join(words, " ")
}

// TestKernel arms the same definitions here and as the running kernel's
// uprobes, one after the other in one process that does the same thing each
// time, and compares every line.
func TestKernel(t *testing.T) {
	k := openTracefs(t)
	prog := ownCopy(t, fixture.Build(t, "probe_kernel.c", "-O2"))
	offs := fileOffsets(t, prog)
	n := 200
	if os.Getenv("KPROBE_TEST_FULL") == "1" {
		n = 1200
	}
	rng := rand.New(rand.NewPCG(5, 6))
	var defs []string
	for i := range n {
		defs = append(defs, randomDefinition(rng, k.group, i, prog, offs))
	}
	sub := startSubject(t, prog)
	optimized := runOurs(t, sub, Options{}, defs)
	breakpoints := runOurs(t, sub, Options{NoOptimize: true}, defs)
	kernel, hits := runKernel(t, k, sub, prog, defs)
	endOfInput(t, sub)
	compareHits(t, defs, optimized, kernel, hits)
	compareHits(t, defs, breakpoints, kernel, hits)
}

// endOfInput ends a program that works for each line of its input.
func endOfInput(t *testing.T, sub *subject) {
	t.Helper()
	_ = sub.in.Close()
	if err := sub.cmd.Wait(); sub.cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("the program ended with %v", err)
	}
}

func runOurs(t *testing.T, sub *subject, o Options, defs []string) hitLines {
	t.Helper()
	o.Log = testLog(t)
	s, err := Attach(t.Context(), []int{sub.pid()}, o)
	if err != nil {
		t.Fatal(err)
	}
	l := collecting(t, s)
	sink := &kernelSink{lines: hitLines{}}
	if err := s.Arm(t.Context(), parseDefs(t, defs...)); err != nil {
		_ = s.Close(t.Context())
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	l.stop = cancel
	go func() {
		defer close(l.done)
		l.sum, l.err = s.Run(ctx, sink)
	}()
	sub.work()
	l.finish(sub.pid())
	for _, st := range s.Stats() {
		if st.Lost != 0 || st.Missed != 0 {
			t.Errorf("%s: %d lost, %d missed", st.Event.Name, st.Lost, st.Missed)
		}
	}
	return sink.lines
}

func runKernel(t *testing.T, k *tracefs, sub *subject, prog string, defs []string) (hitLines, map[string]uint64) {
	t.Helper()
	k.add(defs)
	before := k.hits(prog)
	k.set("trace", "")
	k.set("buffer_size_kb", "4096")
	k.set("events/"+k.group+"/enable", "1")
	sub.work()
	k.set("events/"+k.group+"/enable", "0")
	after := k.hits(prog)
	for e := range after {
		after[e] -= before[e]
	}
	return k.read(), after
}

// quotedText is a text as it is printed here.
var quotedText = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// unquoted gives a line with its texts as they are, which is how the kernel prints
// them: between quotes, whatever is in them.
func unquoted(t *testing.T, line string) string {
	t.Helper()
	return quotedText.ReplaceAllStringFunc(line, func(q string) string {
		text, err := strconv.Unquote(q)
		if err != nil {
			t.Errorf("%s: the text %s can't be read back: %v", line, q, err)
		}
		return `"` + text + `"`
	})
}

func compareHits(t *testing.T, defs []string, ours, kernel hitLines, hits map[string]uint64) {
	t.Helper()
	lines, differ := 0, 0
	for i, d := range defs {
		e := fmt.Sprintf("e%d", i)
		a, b := ours[e], kernel[e]
		if n := hits[e]; n != uint64(len(a)) || len(a) != 4 || len(b) != 4 {
			t.Errorf("%s: %d lines here, %d of the kernel's, which counted %d hits; want 4", d, len(a), len(b), n)
			continue
		}
		for j := range a {
			lines++
			if unquoted(t, a[j]) != b[j] {
				if differ++; differ < 10 {
					t.Errorf("%s\n  here:   %s\n  kernel: %s", d, a[j], b[j])
				}
			}
		}
	}
	t.Logf("%d definitions, %d lines compared, %d differ", len(defs), lines, differ)
}
