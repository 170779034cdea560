package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kprobe/cmd/kprobe/facts"
	"kprobe/probe"
)

// refusing is an engine that may not trace some processes.
type refusing struct {
	*fake
	of map[int]error
}

func (r *refusing) Attach(ctx context.Context, pids []int, o probe.Options) (Session, error) {
	for _, pid := range pids {
		if err := r.of[pid]; err != nil {
			return nil, err
		}
	}
	return r.fake.Attach(ctx, pids, o)
}

// TestLeavesOut: of processes of a name, those that kprobe may not trace are left out with a
// warning, and those that have ended without one. Of processes that were named one by one,
// each is needed.
func TestLeavesOut(t *testing.T) {
	other := errors.New("no memory")
	denied := &probe.PermissionError{PID: 2, Reason: "it is another user's", Remedy: "run kprobe as root"}
	deniedToo := &probe.PermissionError{PID: 3, Reason: "it is another user's", Remedy: "run kprobe as root"}
	for _, tt := range []struct {
		name        string
		named, wait bool
		of          map[int]error
		want        []int // that are traced
		err         error
		warnings    string // pids
		state       string // of process 2; empty: it is gone
	}{
		{"one of another user", true, false, map[int]error{2: denied}, []int{1, 3}, nil, "2", "S"},
		{"two", true, false, map[int]error{2: denied, 3: deniedToo}, []int{1}, nil, "2 3", "S"},
		{"one has ended", true, false, map[int]error{2: &probe.NoProcessError{PID: 2}}, []int{1, 3}, nil, "", "S"},
		{"one is traced by gdb", true, false, map[int]error{1: &probe.TracedError{PID: 1, By: 9}}, []int{2, 3}, nil, "1", "S"},
		{"none is left", true, false, map[int]error{1: &probe.NoProcessError{PID: 1}, 2: denied, 3: deniedToo}, nil, deniedToo, "2", "S"},
		{"none is left, others may come", true, true, map[int]error{1: &probe.NoProcessError{PID: 1}, 2: denied, 3: deniedToo}, []int{}, nil, "2 3", "S"},
		{"named one by one", false, false, map[int]error{2: denied}, nil, denied, "", "S"},
		{"anything else", true, false, map[int]error{2: other}, nil, other, "", "S"},
		{"one ends when it is looked at", true, false, map[int]error{2: other}, []int{1, 3}, nil, "", ""},
		{"one waits for its parent", true, false, map[int]error{2: other}, []int{1, 3}, nil, "", "Z"},
		{"one of those named has ended", false, false, map[int]error{2: other}, nil, other, "", "Z"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := &refusing{&fake{}, tt.of}
			proc := facts.Proc{Root: t.TempDir()}
			for pid, state := range map[string]string{"1": "S", "2": tt.state, "3": "S"} {
				if state != "" {
					status := filepath.Join(proc.Root, pid, "status")
					if err := errors.Join(os.Mkdir(filepath.Dir(status), 0o755),
						os.WriteFile(status, []byte("State:\t"+state+"\nThreads:\t1\n"), 0o644)); err != nil {
						t.Fatal(err)
					}
				}
			}
			var errs bytes.Buffer
			o := &sessionOptions{pids: []int{1, 2, 3}, named: tt.named, wait: tt.wait}
			_, err := o.attach(t.Context(), &Deps{Engine: e, Proc: proc}, &messages{w: &errs}, probe.Options{})
			if !errors.Is(err, tt.err) || !slices.Equal(e.pids, tt.want) {
				t.Errorf("traces %v, want %v; %v, want %v", e.pids, tt.want, err, tt.err)
			}
			var warned []string
			for line := range strings.Lines(errs.String()) {
				_, why, ok := strings.Cut(line, "kprobe: warning: left out: ")
				_, why, named := strings.Cut(why, "process ")
				pid, _, _ := strings.Cut(why, " ")
				if !ok || !named {
					t.Errorf("said %q", line)
				}
				warned = append(warned, strings.TrimSuffix(pid, ":"))
			}
			if got := strings.Join(warned, " "); got != tt.warnings {
				t.Errorf("warned of %q, want %q", got, tt.warnings)
			}
		})
	}
}

// TestOfProcess: a process is named once.
func TestOfProcess(t *testing.T) {
	for text, want := range map[string]string{
		"no such process": "process 12: no such process",
		"read the mappings of process 12: not permitted":  "read the mappings of process 12: not permitted",
		"read the mappings of process 123: not permitted": "process 12: read the mappings of process 123: not permitted",
		"process 123 traces process 12":                   "process 123 traces process 12",
	} {
		err := errors.New(text)
		if got := ofProcess(12, err); got.Error() != want || !errors.Is(got, err) {
			t.Errorf("%s: %v, want %s", text, got, want)
		}
	}
}
