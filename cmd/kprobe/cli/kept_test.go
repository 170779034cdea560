package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kprobe/fetch"
	"kprobe/internal/fixture"
)

// store is a file of kept definitions for a test, and a program to probe.
type store struct {
	t    *testing.T
	path string
	prog string
}

func newStore(t *testing.T) *store {
	t.Helper()
	prog, err := filepath.EvalSymlinks(fixture.Build(t, "cli_loop.c", "-O1"))
	if err != nil {
		t.Fatal(err)
	}
	return &store{t, filepath.Join(t.TempDir(), "events"), prog}
}

// run runs a command line that must end with the status and say the text on
// standard error.
func (s *store) run(e Engine, in string, status int, say string, args ...string) result {
	s.t.Helper()
	r := keeping(s.t, s.path, e, in, args...)
	if r.status != status || !strings.Contains(r.err, say) || say == "" && r.err != "" {
		s.t.Errorf("%q: %+v, want status %d and %q", args, r, status, say)
	}
	return r
}

func (s *store) ok(args ...string) string {
	s.t.Helper()
	return s.run(&fake{}, "", 0, "", args...).out
}

func TestAddListDel(t *testing.T) {
	s := newStore(t)
	if got := s.ok("list"); got != "" {
		t.Errorf("at first there is %q", got)
	}
	s.ok("add", "-x", s.prog, "p:web/w work n=$arg1:s32", "r:back work $retval:s32")
	s.ok("add", "-x", s.prog, "p:web/w main n=$arg1:s32")
	s.ok("add", "p:open libc:openat path=+0($arg2):string if path ~ \"/etc*\"")
	want := "p:web/w PROG:work n=$arg1:s32\n" +
		"r:kprobes/back PROG:work arg1=$retval:s32\n" +
		"p:web/w PROG:main n=$arg1:s32\n" +
		"p:kprobes/open libc:openat path=+0($arg2):string if path ~ \"/etc*\"\n"
	want = strings.ReplaceAll(want, "PROG", s.prog)
	if got := s.ok("list"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	other := filepath.Join(t.TempDir(), "other")
	if r := keeping(t, other, &fake{}, want, "add", "-F", "-"); r.status != 0 {
		t.Errorf("the list is not taken back: %+v", r)
	}
	if got := keeping(t, other, &fake{}, "", "list").out; got != want {
		t.Errorf("it came back as\n%s", got)
	}
	if got := s.ok("list", "web/*"); strings.Count(got, "\n") != 2 {
		t.Errorf("listed %q", got)
	}
	s.ok("del", "-:web/w "+s.prog+":main")
	s.ok("del", "op*")
	s.ok("add", "-:back")
	if got := s.ok("list"); got != strings.SplitAfter(want, "\n")[0] {
		t.Errorf("left is %q", got)
	}
	s.ok("del", "*")
	if got := s.ok("list"); got != "" {
		t.Errorf("left is %q", got)
	}
}

func TestAddIsAllOrNothing(t *testing.T) {
	s := newStore(t)
	s.ok("add", "-x", s.prog, "p:ev work n=$arg1:s32")
	before := s.ok("list")
	keptAs := "kprobes/ev is kept as: p:kprobes/ev " + s.prog + ":work n=$arg1:s32; kprobe del kprobes/ev, or choose another name"
	hinted := func(hint string) string {
		if hint == "" {
			return ""
		}
		return "kprobe: hint: " + hint + "\n"
	}
	tests := []struct {
		name string
		def  string
		say  string
		hint string // what follows the caret
	}{
		{"syntax", "p:x work a=$argX", "Invalid argument number", ""},
		{"no such symbol", "p:x wrok", "the closest: work", ""},
		{"inside an instruction", "p:x main+1", "Probe point is not an instruction boundary", ""},
		{"a return from the middle", "r:x main+2", "Retprobe address must be an function entry", ""},
		{"data", "p:x _IO_stdin_used", "Invalid probed address or symbol", ""},
		{"an address", "p:x 0x401000", "an address means something in a process only", ""},
		{"other arguments", "p:ev main m=$arg1:s32", "Argument type or name is different from existing probe", keptAs},
		{"another kind", "r:ev main n=$arg1:s32", "Probe type is different from existing probe", keptAs},
		{"the same", "p:ev work n=$arg1:s32", "There is already the exact same probe event", "it is kept already: kprobe list kprobes/ev shows it"},
		{"nothing to delete", "-:nothing", "No such event", ""},
		{"no such file", "p:x /no/such/file:work", "Failed to find the given file", ""},
		{"no such data", "p:x work v=@nothing", "nothing", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s.t = t
			r := s.run(&fake{}, "", 1, tt.say, "add", "-x", s.prog, "p:good main", tt.def)
			if !strings.Contains(r.err, "\n  "+tt.def+"\n  ") || !strings.HasSuffix(r.err, "^\n"+hinted(tt.hint)) {
				t.Errorf("no caret: %q", r.err)
			}
			if got := s.ok("list"); got != before {
				t.Errorf("now there is %q", got)
			}
		})
	}
}

// Two definitions of one command line that don't go together: nothing is kept that
// could be deleted.
func TestAddTwoThatDiffer(t *testing.T) {
	s := newStore(t)
	r := s.run(&fake{}, "", 1, "Argument type or name is different", "add", "-x", s.prog, "p:ev work n=$arg1:s32", "p:ev main m=$arg1:s32")
	if !strings.HasSuffix(r.err, "^\n") {
		t.Errorf("%q", r.err)
	}
}

// A name that a stripped program doesn't have is answered with where names are.
func TestStripped(t *testing.T) {
	src := filepath.Join(t.TempDir(), "t.c")
	if err := os.WriteFile(src, []byte("int work(int n) { return n; }\nint main(void) { return work(0); }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for flag, stripped := range map[string]bool{"-s": true, "-O1": false} {
		prog := filepath.Join(t.TempDir(), "prog")
		if out, err := exec.Command(fixture.NeedCC(t), flag, "-o", prog, src).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		r := newStore(t).run(&fake{}, "", 1, "no symbol handle_request", "add", "-x", prog, "handle_request")
		if strings.Contains(r.err, "hint: prog is stripped: ") != stripped {
			t.Errorf("%s: %+v", flag, r)
		}
	}
}

func TestAddNeedsAFile(t *testing.T) {
	s := newStore(t)
	s.run(&fake{}, "", 2, "where is work?", "add", "work")
	s.run(&fake{}, "", 2, "name a place", "add")
	s.run(&fake{}, "", 2, "cannot be used together", "add", "-x", "a", "-p", "1", "work")
	s.run(&fake{}, "", 0, "is not checked", "add", "p:later libnotthere:f")
	if got := s.ok("list"); got != "p:kprobes/later libnotthere:f\n" {
		t.Errorf("%q", got)
	}
}

// TestAddFromAProcess keeps places as the files have them: an address is one
// process's own.
func TestAddFromAProcess(t *testing.T) {
	s := newStore(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	pid := fmt.Sprint(os.Getpid())
	s.ok("add", "-p", pid, "p:main main.main", "p:std fmt.Sprintln")
	for line := range strings.Lines(s.ok("list")) {
		if !strings.Contains(line, " "+self+":") && !strings.Contains(line, `"`+self+":") {
			t.Errorf("%q names no file", line)
		}
	}
	addr := fmt.Sprintf("%#x", uintptr(functionAddress()))
	s.ok("add", "-p", pid, "p:at "+addr)
	if got := s.ok("list", "at"); !strings.Contains(got, self+":0x") || strings.Contains(got, addr+"\n") {
		t.Errorf("%q", got)
	}
}

func TestBootForm(t *testing.T) {
	s := newStore(t)
	s.ok("add", "-x", s.prog, "p:a,work,n=$arg1:s32;r:b,work,$retval")
	if got := s.ok("list"); strings.Count(got, "\n") != 2 || !strings.Contains(got, "r:kprobes/b "+s.prog+":work arg1=$retval\n") {
		t.Errorf("%q", got)
	}
	f := &fake{}
	env := map[string]string{"KPROBE_EVENT": "p:q,libc:openat,fd=%di;p:z,libc:close", "KPROBE_EVENTS": s.path}
	if r := inEnv(t, env, f, "", "trace", "p:x libc:read", "--", "true"); r.status != 0 || names(f.defs) != "x q z" {
		t.Errorf("%+v, %s", r, names(f.defs))
	}
	f = &fake{}
	if r := inEnv(t, env, f, "", "trace", "-p", "41", "p:x libc:read"); r.status != 0 || names(f.defs) != "x" {
		t.Errorf("a running process has no boot: %+v, %s", r, names(f.defs))
	}
}

// names lists the events of definitions.
func names(defs []*fetch.Def) string {
	var out []string
	for _, d := range defs {
		out = append(out, d.Event)
	}
	return strings.Join(out, " ")
}

func TestEnableDisable(t *testing.T) {
	s := newStore(t)
	s.ok("add", "p:web/a libc:read", "p:web/b libc:write", "p:c libc:close")
	s.ok("disable", "web/*")
	if got := s.ok("list"); strings.Count(got, "# disabled: web/") != 2 {
		t.Errorf("%q", got)
	}
	other := filepath.Join(t.TempDir(), "other")
	keeping(t, other, &fake{}, s.ok("list"), "add", "-F", "-")
	if got := keeping(t, other, &fake{}, "", "list").out; got != s.ok("list") {
		t.Errorf("what is disabled came back as %q", got)
	}
	s.ok("enable", "a")
	var disabled []string
	for line := range strings.Lines(s.ok("list", "--json")) {
		var o struct {
			Type, Group, Event, Definition string
			Disabled                       bool
		}
		if err := json.Unmarshal([]byte(line), &o); err != nil || o.Type != "definition" {
			t.Fatalf("%q: %v", line, err)
		}
		if o.Disabled {
			disabled = append(disabled, o.Group+"/"+o.Event)
		}
	}
	if !slices.Equal(disabled, []string{"web/b"}) {
		t.Errorf("disabled: %v", disabled)
	}
	for _, command := range []string{"enable", "disable", "del", "list"} {
		s.run(&fake{}, "", 1, "event matches nothing", command, "c", "nothing")
		s.run(&fake{}, "", 2, "is not a pattern for events", command, "a/b/c")
	}
	for _, command := range []string{"enable", "disable", "del"} {
		s.run(&fake{}, "", 2, "name the events", command)
	}
	if got := s.ok("list"); strings.Count(got, "\n") != 4 {
		t.Errorf("something was changed: %q", got)
	}
}

func TestKeptPlaceIsMissing(t *testing.T) {
	r := inEnv(t, nil, &fake{}, "", "list")
	if r.status != 1 || !strings.Contains(r.err, "neither KPROBE_EVENTS nor XDG_STATE_HOME nor HOME") {
		t.Errorf("%+v", r)
	}
	f := &fake{}
	if r := inEnv(t, nil, f, "", "trace", "-p", "41", "work"); r.status != 0 || names(f.defs) != "p_work_0" {
		t.Errorf("a trace needs no kept definitions: %+v", r)
	}
}
