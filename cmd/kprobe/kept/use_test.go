package kept

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// use marks every event and waits to be killed.
func use(f *File) {
	_, err := f.Use(context.Background(), func(l *List) ([]string, error) {
		return l.Match(Pattern("*").Match), nil
	})
	fmt.Println(err)
	select {}
}

func del(f *File, name string) error {
	return f.Update(context.Background(), func(l *List) error {
		return f.Busy(l.Delete(Pattern(name).Match))
	})
}

// TestBusy is the kernel's busy check: what is traced can't be deleted until
// the trace has ended, by SIGKILL too.
func TestBusy(t *testing.T) {
	f := newFile(t)
	if err := add(t, f, "p:a/b f"); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), useLoop+"="+f.Path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "<nil>\n" {
		t.Fatal(line, err)
	}
	if err := add(t, f, "p:a/c f"); err != nil {
		t.Error(err)
	}
	var busy *BusyError
	err = del(f, "*")
	if !errors.As(err, &busy) || busy.Event != "a/b" || busy.PID != cmd.Process.Pid || !errors.Is(err, syscall.EBUSY) {
		t.Errorf("%v", err)
	}
	if got := contents(t, f); got != "p:a/b f\np:a/c f\n" {
		t.Errorf("the file holds %q", got)
	}
	if err := del(f, "c"); err != nil {
		t.Errorf("an event that nobody traces: %v", err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err := del(f, "b"); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(f.users() + "/*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestRelease(t *testing.T) {
	f := newFile(t)
	if err := add(t, f, "p:a/b f"); err != nil {
		t.Fatal(err)
	}
	release, err := f.Use(context.Background(), func(*List) ([]string, error) { return []string{"a/b"}, nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := del(f, "b"); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("%v", err)
	}
	release()
	if err := del(f, "b"); err != nil {
		t.Error(err)
	}
}

func TestUseGivesBackErrors(t *testing.T) {
	f := newFile(t)
	broken := errors.New("broken")
	if _, err := f.Use(context.Background(), func(*List) ([]string, error) { return nil, broken }); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := f.Use(ctx, func(*List) ([]string, error) { return nil, nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestUseWithoutRights uses events in a folder that can't be written to.
func TestUseWithoutRights(t *testing.T) {
	f := newFile(t)
	if err := add(t, f, "p:a/b f"); err != nil {
		t.Fatal(err)
	}
	// A file in the folder's place fails for root as well.
	if err := os.WriteFile(f.users(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var got []string
	release, err := f.Use(context.Background(), func(l *List) ([]string, error) {
		got = l.Match(Pattern("*").Match)
		return got, nil
	})
	if err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	release()
}
