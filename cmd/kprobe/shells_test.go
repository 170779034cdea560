package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
)

// TestCompletionInShells types into each shell, as a user does at a terminal:
// the beginning of a command, a tab, and return. The script that the shell has
// is the one that make install puts there.
func TestCompletionInShells(t *testing.T) {
	real, prog := program(t), fixture.Build(t, "cli_loop.c", "-O1")
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	// What is run in the end is shown, and not run.
	write("bin/kprobe", "#!/bin/sh\ncase $1 in\n__complete*) exec "+real+" \"$@\" ;;\nesac\necho \"<$*>\"\n", 0o755)
	events := write("events", "p:web/handle "+prog+":work\n", 0o644)
	scripts := filepath.Join(fixture.Root(), "completions")
	shells := []struct {
		name string
		args []string
	}{
		{"bash", []string{"--noprofile", "--rcfile", write("bashrc", "PS1='ready '\nbind 'set enable-bracketed-paste off'\n. "+
			fixture.NeedFile(t, "/usr/share/bash-completion/bash_completion")+"\n. "+filepath.Join(scripts, "kprobe.bash")+"\n", 0o644), "-i"}},
		{"zsh", []string{"-d", "-i"}},
		{"fish", []string{"--no-config", "-i", "-C", "function fish_prompt; echo 'ready '; end; source " + filepath.Join(scripts, "kprobe.fish")}},
	}
	write(".zshrc", "PS1='ready '\nfpath=("+scripts+" $fpath)\nautoload -U compinit\ncompinit -u -D\n", 0o644)
	cases := []struct{ typed, want string }{
		{"kprobe tra", "trace"},
		{"kprobe completion zs", "completion zsh"},
		{"kprobe trace --no-op", "trace --no-optimize"},
		{"kprobe list --format js", "list --format json"},
		{"kprobe trace -x " + prog + " wor", "trace -x " + prog + " work"},
		{"kprobe disable web/ha", "disable web/handle"},
	}
	for _, sh := range shells {
		t.Run(sh.name, func(t *testing.T) {
			cmd := exec.Command(fixture.NeedTool(t, sh.name), sh.args...)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"),
				"KPROBE_EVENTS="+events, "HOME="+dir, "ZDOTDIR="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir, "TERM=dumb")
			term := startInTerminal(t, cmd)
			term.await(t, "ready ")
			for _, c := range cases {
				term.typed(t, c.typed+"\t\r")
				term.await(t, "<"+c.want+">")
			}
		})
	}
}

// terminal is the other end of a program's terminal.
type terminal struct {
	f *os.File

	mu   sync.Mutex
	seen bytes.Buffer // guarded by mu: what was shown and not yet awaited
}

// startInTerminal starts a program at a terminal of its own (pts(4)), and ends
// it with the test.
func startInTerminal(t *testing.T, cmd *exec.Cmd) *terminal {
	t.Helper()
	f, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(f.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(int(f.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 300})
	}
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	term := &terminal{f: f}
	over := make(chan struct{})
	go func() {
		defer close(over)
		b := make([]byte, 4096)
		for {
			n, err := f.Read(b)
			term.mu.Lock()
			term.seen.Write(b[:n])
			term.mu.Unlock()
			if err != nil {
				return // EIO: the program has ended
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		f.Close()
		<-over
	})
	return term
}

func (term *terminal) typed(t *testing.T, keys string) {
	t.Helper()
	if _, err := term.f.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

// await waits until the text was shown, and forgets what was shown up to it.
func (term *terminal) await(t *testing.T, text string) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		term.mu.Lock()
		ok := strings.Contains(term.seen.String(), text)
		if ok {
			term.seen.Next(strings.Index(term.seen.String(), text) + len(text))
		}
		term.mu.Unlock()
		if ok {
			return
		}
	}
	term.mu.Lock()
	defer term.mu.Unlock()
	t.Fatalf("%q was never shown; what was is %q", text, term.seen.String())
}
