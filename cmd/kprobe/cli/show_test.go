package cli

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"kprobe/fetch"
	"kprobe/internal/fixture"
)

// twins is a program with two static functions of one name, and others.
func twins(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const static = "static __attribute__((noinline)) int twin(int n) { return n + %; }\n"
	a := write("a.c", strings.Replace(static, "%", "1", 1)+"int other(int);\nint only(int n) { return n * 2; }\n"+
		"int main(int argc, char **argv) { (void)argv; return twin(argc) + other(argc) + only(argc) == 0; }\n")
	b := write("b.c", strings.Replace(static, "%", "7", 1)+"int other(int n) { return twin(n) * 3; }\n")
	prog := filepath.Join(dir, "prog")
	if out, err := exec.Command(fixture.NeedCC(t), "-O1", "-o", prog, a, b).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return prog
}

func TestFunctionsOfAFile(t *testing.T) {
	prog := twins(t)
	r := kprobe(t, &fake{}, "", "functions", "-x", prog)
	got := strings.Split(strings.TrimSuffix(r.out, "\n"), "\n")
	for _, name := range []string{"main", "only", "other", "twin@a.c", "twin@b.c"} {
		if !slices.Contains(got, name) {
			t.Errorf("%s is missing: %v", name, got)
		}
	}
	if slices.Contains(got, "twin") {
		t.Errorf("twin means two functions: %v", got)
	}
	if !slices.IsSorted(got) || r.status != 0 || r.err != "" {
		t.Errorf("%+v", r)
	}
	r = kprobe(t, &fake{}, "", "functions", "-x", prog, "o*")
	if r.out != "only\nother\n" {
		t.Errorf("o*: %+v", r)
	}
	r = kprobe(t, &fake{}, "", "functions", "-x", prog, "nothing*")
	if r.status != 1 || r.out != "" || r.err != "kprobe: no function matches nothing*\n" {
		t.Errorf("%+v", r)
	}
}

// TestFunctionsReadable: names of C++ are those of c++filt, and each is accepted
// where it is printed, quotes included.
func TestFunctionsReadable(t *testing.T) {
	prog := fixture.Build(t, "sym_names.cc", "-O0")
	raw := kprobe(t, &fake{}, "", "functions", "--no-demangle", "-x", prog)
	c := exec.Command(fixture.NeedTool(t, "c++filt"))
	c.Stdin = strings.NewReader(raw.out)
	filtered, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	r := kprobe(t, &fake{}, "", "functions", "-x", prog)
	got := strings.Split(strings.TrimSuffix(strings.ReplaceAll(r.out, `"`, ""), "\n"), "\n")
	want := strings.Split(strings.TrimSuffix(string(filtered), "\n"), "\n")
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) || r.status != 0 {
		t.Errorf("%q, want %q", got, want)
	}
	quoted := 0
	for line := range strings.Lines(r.out) {
		line = strings.TrimSuffix(line, "\n")
		if line[0] == '"' {
			quoted++
		}
		for _, text := range []string{"p:ev " + line + " a=$arg1", line} {
			d, err := fetch.Parse(text)
			if err != nil || d.Place.String() != strings.Trim(line, `"`) {
				t.Errorf("%s: %v", text, err)
			}
		}
		if r := kprobe(t, &fake{}, "", "show", "--lines", "-x", prog, line); strings.Contains(r.err, "no symbol") || strings.Contains(r.err, "not unique") {
			t.Errorf("%s: %s", line, r.err)
		}
	}
	if quoted == 0 {
		t.Error("no name has quotes, such as that of operator bool")
	}
	r = kprobe(t, &fake{}, "", "functions", "--json", "-x", prog, "ns::f(int)")
	if !strings.HasPrefix(r.out, `{"name":"ns::f(int)","symbol":"_ZN2ns1fEi",`) {
		t.Errorf("%+v", r)
	}
}

func TestFunctionsJSON(t *testing.T) {
	r := kprobe(t, &fake{}, "", "functions", "--json", "-x", twins(t), "only")
	var o struct {
		Name, Module, Vaddr string
		Size                int
		Addr                *string
	}
	if err := json.Unmarshal([]byte(r.out), &o); err != nil {
		t.Fatalf("%+v: %v", r, err)
	}
	if o.Name != "only" || o.Module != "prog" || !strings.HasPrefix(o.Vaddr, "0x") || o.Size == 0 || o.Addr != nil {
		t.Errorf("%s", r.out)
	}
}

func TestFunctionsOfAProcess(t *testing.T) {
	r := kprobe(t, &fake{}, "", "functions", "-p", strconv.Itoa(sleeper(t)), "libc:openat*")
	if r.status != 0 || !strings.Contains(r.out, ":openat\n") {
		t.Errorf("%+v", r)
	}
	for l := range strings.Lines(r.out) {
		if !strings.HasPrefix(l, "libc") {
			t.Errorf("not of libc: %s", l)
		}
	}
	r = kprobe(t, &fake{}, "", "functions", "-p", strconv.Itoa(sleeper(t)), "libnot:x")
	if r.status != 1 || !strings.Contains(r.err, "libnot") {
		t.Errorf("%+v", r)
	}
}

// sleeper is a process that links the C library and waits.
func sleeper(t *testing.T) int {
	t.Helper()
	c := exec.Command(fixture.NeedTool(t, "sleep"), "60")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	// Until exec is through, it is still this test, and then the loader maps the C library.
	own, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		exe, err := os.Readlink("/proc/" + strconv.Itoa(c.Process.Pid) + "/exe")
		if err == nil && exe != own {
			if maps, err := os.ReadFile("/proc/" + strconv.Itoa(c.Process.Pid) + "/maps"); err == nil && strings.Contains(string(maps), "libc") {
				return c.Process.Pid
			}
		}
		if time.Now().After(end) {
			t.Fatalf("process %d, which runs %s, has no C library: %v", c.Process.Pid, exe, err)
		}
	}
}

func TestFilesThatAreNone(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no ELF file, but long enough to be looked at: "+strings.Repeat("x", 200)), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"functions", "-x", text}, {"functions", "-x", text + "/no"}, {"show", "-x", text, "main"}, {"functions", "-p", "999999999"},
	} {
		if r := kprobe(t, &fake{}, "", args...); r.status != 1 || r.out != "" || !strings.HasPrefix(r.err, "kprobe: ") {
			t.Errorf("%v: %+v", args, r)
		}
	}
}

func TestShow(t *testing.T) {
	prog := twins(t)
	f := &fake{}
	r := kprobe(t, f, "", "show", "-x", prog, "twin@a.c+4")
	if f.shown.Symbol != "twin" || f.shown.File != "a.c" || f.shown.Offset != 4 {
		t.Errorf("asked for %+v", f.shown)
	}
	if r.status != 0 || r.err != "" || !strings.Contains(r.out, "nop") || !strings.Contains(r.out, "breakpoint") {
		t.Errorf("%+v", r)
	}
	r = kprobe(t, f, "", "show", "--json", prog+":only")
	var o map[string]any
	if err := json.Unmarshal([]byte(r.out), &o); err != nil || o["why"] != "short" || o["bytes"] != "90" {
		t.Errorf("%+v: %v", r, err)
	}
	if r := kprobe(t, f, "", "show", "-x", prog, "operator new(unsigned long)"); r.status != 0 || f.shown.Symbol != "operator new(unsigned long)" {
		t.Errorf("%+v, asked for %+v", r, f.shown)
	}
}

func TestCheck(t *testing.T) {
	r := kprobe(t, &fake{}, "", "check", strconv.Itoa(os.Getpid()))
	if r.status != 1 || !strings.Contains(r.out, "problem process: ") || r.err != "" {
		t.Errorf("itself: %+v", r)
	}
	r = kprobe(t, &fake{}, "", "check", "--json", "-p", strconv.Itoa(sleeper(t)))
	for l := range strings.Lines(r.out) {
		var o map[string]string
		if err := json.Unmarshal([]byte(l), &o); err != nil || o["fact"] == "" || o["text"] == "" {
			t.Errorf("%s: %v", l, err)
		}
	}
	if r.status != 0 {
		t.Errorf("a child: %+v", r)
	}
}

func TestCompletion(t *testing.T) {
	for shell, mark := range map[string]string{"bash": "__start_kprobe", "zsh": "#compdef kprobe", "fish": "complete -c kprobe"} {
		if r := kprobe(t, &fake{}, "", "completion", shell); r.status != 0 || !strings.Contains(r.out, mark) {
			t.Errorf("%s: status %d, %d bytes, %q", shell, r.status, len(r.out), r.err)
		}
	}
	complete := func(args ...string) string {
		r := kprobe(t, &fake{}, "", append([]string{"__complete"}, args...)...)
		return r.out
	}
	if got := complete("tr"); !strings.HasPrefix(got, "trace\t") {
		t.Errorf("commands: %q", got)
	}
	if got := complete("trace", "-x", twins(t), "on"); !strings.HasPrefix(got, "only\n") {
		t.Errorf("symbols: %q", got)
	}
	pid := strconv.Itoa(sleeper(t))
	if got := complete("show", "-p", pid); !strings.HasPrefix(got, pid+"\tsleep") {
		t.Errorf("processes: %q", got)
	}
	if got := complete("trace", "-p", pid, "libc"); !strings.Contains(got, "libc") || !strings.Contains(got, ":\n") {
		t.Errorf("libraries of a process: %q", got)
	}
	if got := complete("trace", "-p", pid, "libc:openat"); !strings.HasPrefix(got, "libc:openat") {
		t.Errorf("functions of a library: %q", got)
	}
	if got := complete("trace", "-p", pid, "libc:openat", "--", "/bi"); !strings.HasSuffix(got, ":0\n") {
		t.Errorf("a command is a file: %q", got)
	}
	s := newStore(t)
	s.ok("add", "p:web/handle libc:close")
	if r := keeping(t, s.path, &fake{}, "", "__complete", "trace", "-p", pid, "we"); !strings.HasPrefix(r.out, "web/handle\n") {
		t.Errorf("kept events: %q", r.out)
	}
	if got := complete("trace", "--time", ""); !strings.HasPrefix(got, "mono\nrel\nwall\n") {
		t.Errorf("values: %q", got)
	}
}
