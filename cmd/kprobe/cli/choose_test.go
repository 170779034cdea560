package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestKeptEventsAreChosen(t *testing.T) {
	s := newStore(t)
	s.ok("add", "-x", s.prog, "p:web/w work", "p:web/m main", "p:close libc:close", "p:off libc:read")
	s.ok("add", "p:off libc:write")
	s.run(&fake{}, "", 0, "is not checked", "add", "p:gone libnotthere:f")
	s.ok("disable", "off")
	tests := []struct {
		name string
		args []string
		want string // events, or after ! the message
	}{
		{"all whose files it maps or may load", []string{"--", s.prog}, "w m close gone"},
		{"another program", []string{"--", "true"}, "close gone"},
		{"by event", []string{"w", "--", s.prog}, "w"},
		{"by group and event", []string{"web/w", "--", s.prog}, "w"},
		{"by glob", []string{"web/*", "--", s.prog}, "w m"},
		{"one by two names", []string{"web/*", "w", "--", s.prog}, "w m"},
		{"with a definition", []string{"p:x libc:open", "close", "--", s.prog}, "x close"},
		{"a place that is no event", []string{"libc:close", "--", s.prog}, "p_libc_close_0"},
		{"a bare place", []string{"wor*", "--", s.prog}, "p_wor__0"},
		{"a named one needs no check", []string{"gone", "--", "true"}, "gone"},
		{"a glob for what isn't mapped", []string{"web/*", "--", "true"}, "!none of the 2 kept definitions is about a file that the target maps"},
		{"disabled", []string{"off", "--", s.prog}, "!kprobes/off is disabled: kprobe enable kprobes/off"},
		{"unknown", []string{"web/x", "--", s.prog}, "!no kept event matches web/x"},
		{"a process", []string{"-p", fmt.Sprint(os.Getpid()), "web/*"}, "!none of the 2 kept definitions"},
	}
	for _, command := range []string{"trace", "profile"} {
		for _, tt := range tests {
			t.Run(command+" "+tt.name, func(t *testing.T) {
				f := &fake{}
				r := keeping(t, s.path, f, "", append([]string{command}, tt.args...)...)
				if say, bad := strings.CutPrefix(tt.want, "!"); bad {
					if r.status != 1 || !strings.Contains(r.err, say) {
						t.Errorf("%+v", r)
					}
					return
				}
				if r.status != 0 || names(f.defs) != tt.want {
					t.Errorf("%+v, armed %s", r, names(f.defs))
				}
			})
		}
	}
}

func TestVerboseSaysWhatIsLeftOut(t *testing.T) {
	s := newStore(t)
	s.ok("add", "-x", s.prog, "p:web/w work", "p:close libc:close")
	r := s.run(&fake{}, "", 0, "kprobe: web/w is left out: the target does not map "+s.prog, "trace", "-v", "--", "true")
	if strings.Count(r.err, "left out") != 1 {
		t.Errorf("%q", r.err)
	}
}

// TestWhatMayWait: kept definitions wait for their libraries, those of the
// command line with --pending.
func TestWhatMayWait(t *testing.T) {
	s := newStore(t)
	s.run(&fake{}, "", 0, "is not checked", "add", "p:gone libnotthere:f")
	for _, pending := range []bool{false, true} {
		f := &fake{}
		args := []string{"trace", "-q", "gone", "p:typed libnotthere:f", "--", "true"}
		if pending {
			args = append([]string{"trace", "--pending"}, args[1:]...)
		}
		s.run(f, "", 0, "", args...)
		if len(f.defs) != 2 {
			t.Fatalf("armed %s", names(f.defs))
		}
		for _, d := range f.defs {
			if want := pending || d.Event == "gone"; f.opts.Pending(d) != want {
				t.Errorf("--pending=%v: %s waits: %v", pending, d.Event, !want)
			}
		}
	}
}

func TestChosenEventsAreBusy(t *testing.T) {
	s := newStore(t)
	s.ok("add", "p:close libc:close", "p:read libc:read")
	f := &fake{run: whileRunning(func() {
		s.run(&fake{}, "", 1, "kprobes/close is busy: kprobe, process ", "del", "*")
		s.ok("del", "read")
	})}
	s.run(f, "", 0, "", "trace", "-q", "close", "--", "true")
	s.ok("del", "close")
}

func TestMappedBy(t *testing.T) {
	s := newStore(t)
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!"+s.prog+" 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(s.prog, link); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		command, module string
		want            bool
	}{
		{s.prog, s.prog, true},
		{s.prog, "", true},
		{s.prog, "cli_loop", strings.HasPrefix(filepath.Base(s.prog), "cli_loop.so") || filepath.Base(s.prog) == "cli_loop"},
		{s.prog, "libc", true},
		{s.prog, "libc.so.6", true},
		{s.prog, "libcc", false},
		{s.prog, "ld-linux-x86-64.so.2", true},
		{s.prog, "/bin/true", false},
		{script, s.prog, true},
		{script, "libc", true},
		{link, s.prog, true},
		{s.prog, link, true},
		{"/no/such/file", "libc", false},
		{"true", s.prog, false},
	}
	for _, tt := range tests {
		if got := mappedBy(tt.command)(tt.module); got != tt.want {
			t.Errorf("%s maps %s: %v", tt.command, tt.module, got)
		}
	}
}
