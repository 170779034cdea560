package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMisuse(t *testing.T) {
	tests := []struct {
		args string
		err  string // part of the message
	}{
		{"", "name a command"},
		{"tracee", "no command tracee; did you mean trace?"},
		{"xyzzy", "there are add, bench, check, completion"},
		{"--no-such", "no-such"},
		{"trace", "name a target"},
		{"trace ev", "name a target"},
		{"trace -p 1", "name a place"},
		{"trace -p 1 -- true", "cannot be used together"},
		{"trace ev --", "name the command"},
		{"trace -p 0 ev", "0 is not a process ID"},
		{"trace -p server ev", `-p "$(pgrep -d, -x server)"`},
		{"trce -p 1 ev", "did you mean trace?"},
		{"rewrite -p 1 ev", "no command rewrite; there are "},
		{"-p 1 ev", "name a command before -p, such as: kprobe trace -p 1 ev"},
		{"--pid 1 ev", "name a command before --pid"},
		{"trace -p 1 -t 10 ev", `invalid duration "10": give a unit, for example 10s or 10ms`},
		{"trace -p 1 -t 0s ev", "give a time above 0"},
		{"trace -p 1 -n 0 ev", "give a number above 0"},
		{"trace -p 1 --maxactive 0 ev", "1 to 4096"},
		{"trace -p 1,x ev", `"x" is not a process ID`},
		{"trace -p 1 ev --format xml", `"xml" is neither text nor json`},
		{"trace -p 1 ev --time never", "unknown time"},
		{"trace -p 1 ev --maxactive 4097", "1 to 4096"},
		{"trace -p 1 ev -v -q", "cannot be used together"},
		{"trace -p 1 ev -t -5s", "give a time above 0"},
		{"trace -p 1 ev -t soon", "soon"},
		{"trace -p 1 ev -n -3", "-3"},
		{"profile -p 1 ev -n 3", "-n"},
		{"show", "name one place"},
		{"show a b", "name one place"},
		{"show work", "where to look?"},
		{"show -p 1 -x /bin/true work", "cannot be used together"},
		{"show -p 1,2 work", "one process"},
		{"snapshot -p 1,2 -o hits", "-o FILE is for one process"},
		{"graph --now", "processes that run: -p PID"},
		{"graph --now -p 1 main", "processes that run: -p PID"},
		{"graph --now -p 1 --slower 1ms", "takes none of"},
		{"functions a b", "one pattern"},
		{"functions", "where to look?"},
		{"functions --usdt --files -x /bin/ls", "--usdt lists probes"},
		{"check", "name one process"},
		{"check one", `"one" is not a process ID`},
		{"check 1 2", "name one process"},
		{"bench work", "no arguments"},
		{"completion", "name a shell"},
		{"completion powershell", "powershell"},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			r := kprobe(t, &fake{}, "", strings.Fields(tt.args)...)
			if r.status != ExitMisuse || r.out != "" || !strings.Contains(r.err, tt.err) {
				t.Errorf("%+v, want status 2 and %q", r, tt.err)
			}
			lines := strings.Split(strings.TrimSuffix(r.err, "\n"), "\n")
			if !strings.HasPrefix(lines[0], "kprobe: ") || !strings.HasPrefix(lines[len(lines)-1], "kprobe: hint: ") {
				t.Errorf("shape of the message: %q", r.err)
			}
		})
	}
}

func TestWhereDefinitionsComeFrom(t *testing.T) {
	file := filepath.Join(t.TempDir(), "probes")
	if err := os.WriteFile(file, []byte("# two\np:one a\n\nr:two libc:b\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		in   string
		args []string
		want string
	}{
		{"words before and after flags", "", []string{"p:x a", "-n", "1", "b+4", "-q"}, "p:kprobes/x a; p:kprobes/p_b_4 b+4"},
		{"a file, then words", "", []string{"c", "-F", file}, "p:kprobes/one a; r:kprobes/two libc:b; p:kprobes/p_c_0 c"},
		{"standard input", "p:in a\n", []string{"-F", "-"}, "p:kprobes/in a"},
		{"one event, two places", "", []string{"p:x a", "p:x b"}, "p:kprobes/x a; p:kprobes/x b"},
		{"-x", "", []string{"-x", "/bin/prog", "a", "libc:b", "0x1000"}, "p:kprobes/p_a_0 /bin/prog:a; p:kprobes/p_libc_b_0 libc:b; p:kprobes/p_0x1000 0x1000"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := &fake{}
			r := kprobe(t, f, tt.in, append([]string{"trace", "-p", "41"}, tt.args...)...)
			var got []string
			for _, d := range f.defs {
				got = append(got, d.String())
			}
			if strings.Join(got, "; ") != tt.want || r.status != 0 {
				t.Errorf("got  %s\nwant %s\n%+v", strings.Join(got, "; "), tt.want, r)
			}
		})
	}
}

func TestErrorsOfFilesNameThem(t *testing.T) {
	file := filepath.Join(t.TempDir(), "probes")
	if err := os.WriteFile(file, []byte("p:one a\np:two a x=$argX\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := kprobe(t, &fake{}, "", "trace", "-p", "41", "-F", file)
	if r.status != 1 || !strings.Contains(r.err, fmt.Sprintf("%s:2: Invalid argument number", file)) || !strings.Contains(r.err, "\n  p:two a x=$argX\n            ^\n") {
		t.Errorf("%+v", r)
	}
	r = kprobe(t, &fake{}, "", "trace", "-p", "41", "-F", file+"x")
	if r.status != 1 || !strings.Contains(r.err, "no such file") {
		t.Errorf("%+v", r)
	}
}

func TestCommandThatDoesNotExist(t *testing.T) {
	r := kprobe(t, &fake{}, "", "trace", "ev", "--", "no-such-command-anywhere")
	if r.status != 1 || !strings.Contains(r.err, "start no-such-command-anywhere: executable file not found") {
		t.Errorf("%+v", r)
	}
}

func TestHelpIsData(t *testing.T) {
	for _, args := range [][]string{{"help"}, {"--help"}, {"help", "trace"}, {"trace", "--help"}, {"show", "-h"}} {
		r := kprobe(t, &fake{}, "", args...)
		if r.status != 0 || r.err != "" || !strings.Contains(r.out, "Usage:") {
			t.Errorf("%v: %+v", args, r)
		}
	}
}

func TestEveryCommandExplainsItself(t *testing.T) {
	for _, c := range New(&Deps{}).Commands() {
		if len(c.Long) < 60 || c.Short == "" {
			t.Errorf("%s has no description", c.Name())
		}
		for l := range strings.Lines(c.Long + "\n" + c.Example) {
			if len([]rune(l)) > 100 {
				t.Errorf("%s: a line of its help is too long: %q", c.Name(), l)
			}
		}
	}
}

// TestSize: sizes with units, rounded up to powers of two.
func TestSize(t *testing.T) {
	for s, want := range map[string]string{
		"64K": "64K", "65536": "64K", "65537": "128K", "3m": "4M", "16MiB": "16M", "1G": "1G",
		"": "give a size", "K": "give a size", "-1": "give a size", "1.5M": "give a size", "63K": "from 64K to 1G", "2G": "from 64K to 1G", "999999G": "from 64K to 1G",
	} {
		var v sizeValue
		if err := v.Set(s); err != nil && !strings.Contains(err.Error(), want) || err == nil && v.String() != want {
			t.Errorf("%q: %s, %v, want %s", s, v.String(), err, want)
		}
	}
}
