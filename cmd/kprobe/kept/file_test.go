package kept

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"kprobe/fetch"
)

func newFile(t *testing.T) *File {
	t.Helper()
	return &File{Path: filepath.Join(t.TempDir(), "state", "events")}
}

func add(t *testing.T, f *File, texts ...string) error {
	return f.Update(context.Background(), func(l *List) error { return l.Add(defs(t, texts...)) })
}

func contents(t *testing.T, f *File) string {
	t.Helper()
	l, err := f.Read()
	if err != nil {
		t.Fatal(err)
	}
	return string(l.Bytes())
}

func TestPath(t *testing.T) {
	tests := []struct {
		name string
		env  map[string]string
		want string
	}{
		{"named", map[string]string{"KPROBE_EVENTS": "/x/y", "HOME": "/h"}, "/x/y"},
		{"xdg", map[string]string{"XDG_STATE_HOME": "/s", "HOME": "/h"}, "/s/kprobe/events"},
		{"xdg, not absolute", map[string]string{"XDG_STATE_HOME": "s", "HOME": "/h"}, "/h/.local/state/kprobe/events"},
		{"home", map[string]string{"HOME": "/h"}, "/h/.local/state/kprobe/events"},
		{"nothing", nil, ""},
	}
	for _, tt := range tests {
		got, err := Path(func(n string) string { return tt.env[n] })
		if got != tt.want || (got == "") != errors.Is(err, ErrNoHome) {
			t.Errorf("%s: %q, %v", tt.name, got, err)
		}
	}
	if got, err := Path(func(string) string { return "rel" }); err != nil || !filepath.IsAbs(got) {
		t.Errorf("relative: %q, %v", got, err)
	}
}

func TestUpdate(t *testing.T) {
	f := newFile(t)
	if got := contents(t, f); got != "" {
		t.Errorf("at first it holds %q", got)
	}
	if err := add(t, f, "p:a/b f"); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(f.Path)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if err := os.Chmod(f.Path, 0o644); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	err = f.Update(context.Background(), func(l *List) error {
		l.Delete(Pattern("*").Match)
		return broken
	})
	if !errors.Is(err, broken) || contents(t, f) != "p:a/b f\n" {
		t.Errorf("%v, and the file holds %q", err, contents(t, f))
	}
	if err := add(t, f, "p:a/c f"); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(f.Path); err != nil || st.Mode().Perm() != 0o644 {
		t.Errorf("the file's mode was changed: %v, %v", st.Mode(), err)
	}
}

// TestALinkStaysALink is about files that live in a folder of their owner's.
func TestALinkStaysALink(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink("real", link); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "real"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f := &File{Path: link}
	if err := add(t, f, "p:a/b f"); err != nil {
		t.Fatal(err)
	}
	if got, err := os.Readlink(link); got != "real" {
		t.Errorf("%q, %v", got, err)
	}
	if got := contents(t, &File{Path: filepath.Join(dir, "real")}); got != "p:a/b f\n" {
		t.Errorf("it holds %q", got)
	}
}

func TestOnlyRegularFiles(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := add(t, &File{Path: fifo}, "p:a/b f"); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("%v", err)
	}
	if err := add(t, &File{Path: t.TempDir()}, "p:a/b f"); err == nil {
		t.Error("a folder was taken")
	}
}

func TestABrokenFileIsLeftAlone(t *testing.T) {
	f := &File{Path: filepath.Join(t.TempDir(), "events")}
	const text = "p:a/b f\nwhat is this? %\n"
	if err := os.WriteFile(f.Path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := add(t, f, "p:a/c f"); err == nil || !strings.Contains(err.Error(), f.Path+":2: ") {
		t.Errorf("%v", err)
	}
	if b, err := os.ReadFile(f.Path); string(b) != text {
		t.Errorf("%q, %v", b, err)
	}
}

func TestLockWaits(t *testing.T) {
	f := newFile(t)
	unlock, err := f.lock(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := f.Update(ctx, func(*List) error { t.Error("two have the lock"); return nil }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	unlock()
	if err := add(t, f, "p:a/b f"); err != nil {
		t.Error(err)
	}
}

// TestManyAtOnce has 8 writers add and delete; readers see whole files only.
func TestManyAtOnce(t *testing.T) {
	f := newFile(t)
	const writers, each = 8, 25
	stop := make(chan struct{})
	var reader, group sync.WaitGroup
	reader.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := f.Read(); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for w := range writers {
		group.Go(func() {
			for i := range each {
				name := fmt.Sprintf("e%d_%d", w, i)
				if err := add(t, f, "p:a/"+name+" f"); err != nil {
					t.Error(err)
				}
				if i%2 == 1 {
					if err := add(t, f, "-:a/"+name); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	group.Wait()
	close(stop)
	reader.Wait()
	l, err := f.Read()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, d := range l.Defs() {
		seen[d.Event]++
	}
	for w := range writers {
		for i := range each {
			if want := 1 - i%2; seen[fmt.Sprintf("e%d_%d", w, i)] != want {
				t.Errorf("e%d_%d is there %d times", w, i, seen[fmt.Sprintf("e%d_%d", w, i)])
			}
		}
	}
}

// Variables that make the test binary a process of the tests below.
const (
	addLoop = "KPROBE_TEST_ADD"
	useLoop = "KPROBE_TEST_USE"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(addLoop); path != "" {
		loop(&File{Path: path})
	}
	if path := os.Getenv(fullDisk); path != "" {
		full(&File{Path: path})
	}
	if path := os.Getenv(useLoop); path != "" {
		use(&File{Path: path})
	}
	os.Exit(m.Run())
}

// loop adds events until it is killed, and prints the name of each that is in.
func loop(f *File) {
	for i := 0; ; i++ {
		name := fmt.Sprintf("e%d_%d", os.Getpid(), i)
		l := defs(&testing.T{}, "p:a/"+name+" f")
		if err := f.Update(context.Background(), func(k *List) error { return k.Add(l) }); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		fmt.Println(name)
	}
}

// TestKilledInTheMiddle kills writers with SIGKILL: what they said is in the
// file is in it, and the file is whole.
func TestKilledInTheMiddle(t *testing.T) {
	f := newFile(t)
	var said []string
	for i := range 12 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), addLoop+"="+f.Path)
		pipe, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		out, first := bufio.NewReader(pipe), ""
		if i%3 != 0 { // else it may be killed before it has written anything
			if first, err = out.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Duration(20+7*i) * time.Millisecond)
		_ = cmd.Process.Kill()
		rest, _ := io.ReadAll(out)
		_ = cmd.Wait()
		for line := range strings.Lines(first + string(rest)) {
			if strings.HasPrefix(line, "error") {
				t.Fatal(line)
			}
			if strings.HasSuffix(line, "\n") {
				said = append(said, strings.TrimSpace(line))
			}
		}
	}
	l, err := f.Read()
	if err != nil {
		t.Fatal(err)
	}
	there := l.Places()
	for _, name := range said {
		if there["a/"+name] != 1 {
			t.Errorf("%s was kept and is not there", name)
		}
	}
	if len(said) == 0 {
		t.Error("no writer wrote anything")
	}
	if err := add(t, f, "p:a/after f"); err != nil {
		t.Error(err)
	}
}

// fullDisk is the environment variable that has this binary run full.
const fullDisk = "KPROBE_TEST_FULL_DISK"

// full adds more than a file may hold, and tells whether that was refused. It
// is a process of its own, as the limit is of all of its files.
func full(f *File) {
	defer os.Exit(0)
	var limit syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit)
	if limit.Cur = 4096; err == nil {
		err = syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)
	}
	var many []*fetch.Def
	for i := range 400 {
		d, perr := fetch.Parse(fmt.Sprintf("p:a/event%d f", i))
		err = errors.Join(err, perr)
		many = append(many, d)
	}
	if err == nil {
		err = f.Update(context.Background(), func(l *List) error { return l.Add(many) })
	}
	fmt.Println(errors.Is(err, syscall.EFBIG), err)
}

// TestFullDisk lets the disk be full by a limit on the size of files: the file
// stays what it was and there is no litter.
func TestFullDisk(t *testing.T) {
	f := newFile(t)
	if err := add(t, f, "p:a/b f"); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fullDisk+"="+f.Path)
	out, err := cmd.Output()
	if err != nil || !strings.HasPrefix(string(out), "true ") {
		t.Errorf("%s (%v)", out, err)
	}
	if got := contents(t, f); got != "p:a/b f\n" {
		t.Errorf("the file holds %q", got)
	}
	if _, err := os.Stat(f.Path + ".new"); err == nil {
		t.Error("a temporary file was left")
	}
}
