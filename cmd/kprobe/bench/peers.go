package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"kprobe/internal/procfs"

	"golang.org/x/sys/unix"
)

// peer is another tool that records hits of work.
type peer struct {
	what  string
	tool  string // looked up in PATH
	floor floorKind
	event bool // it takes an event of the kernel's, with two arguments
	// told says that it begins when it is told to (remote), some time after its
	// breakpoint is there.
	told bool
	args func(s *scene) []string
	// count finds out how many hits the peer has recorded, from what it printed
	// and the files that it left.
	count func(s *scene, printed string) (uint64, error)
}

// scene is what a peer is told.
type scene struct {
	pid   int
	path  string
	at    uint64 // work's address
	group string // of the event
	dir   string // for files
}

func peers() []peer {
	return []peer{
		{what: "bpftrace, counted only", tool: "bpftrace", floor: floorCount, args: func(s *scene) []string {
			return []string{"-p", fmt.Sprint(s.pid), "-e", "uprobe:" + s.path + ":work { @ = count(); }"}
		}, count: func(_ *scene, printed string) (n uint64, err error) {
			_, text, _ := strings.Cut(printed, "@: ")
			_, err = fmt.Sscan(text, &n)
			return n, err
		}},
		{what: "bpftrace, printf of 2 arguments", tool: "bpftrace", floor: floorEntry, args: func(s *scene) []string {
			return []string{"-p", fmt.Sprint(s.pid), "-o", filepath.Join(s.dir, "bpftrace.out"), "-e", "uprobe:" + s.path + `:work { printf("%d %lx %lx\n", tid, arg0, arg1); }`}
		}, count: func(s *scene, _ string) (uint64, error) {
			b, err := os.ReadFile(filepath.Join(s.dir, "bpftrace.out"))
			return linesOf(string(b), 3), err
		}},
		{what: "perf record of a uprobe, 2 arguments", tool: "perf", floor: floorEntry, event: true, told: true, args: func(s *scene) []string {
			return []string{"record", "-q", "-D", "-1", "--control", remoteFDs, "-e", s.group + ":hit", "-p", fmt.Sprint(s.pid), "-o", filepath.Join(s.dir, "perf.data")}
		}, count: func(s *scene, _ string) (uint64, error) {
			b, err := exec.Command("perf", "script", "-F", "tid,ip", "-G", "-i", filepath.Join(s.dir, "perf.data")).Output()
			return uint64(bytes.Count(b, []byte("\n"))), err
		}},
		{what: "gdb, dprintf of 2 arguments", tool: "gdb", floor: floorStop, args: func(s *scene) []string {
			return []string{"-nx", "-q", "-batch", "-p", fmt.Sprint(s.pid), "-ex", fmt.Sprintf(`dprintf *%#x, "%%lx %%lx\n", $rdi, $rsi`, s.at), "-ex", "continue"}
		}, count: func(_ *scene, printed string) (uint64, error) { return linesOf(printed, 2), nil }},
	}
}

// linesOf counts the lines that are so many numbers without signs.
func linesOf(text string, numbers int) (n uint64) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == numbers && strings.Trim(strings.Join(fields, ""), "0123456789abcdef") == "" {
			n++
		}
	}
	return n
}

// lostOf is the share of calls that were made and not recorded. A uprobe whose
// step is interrupted may be hit once more for the same call: some more records
// than calls are no reason to doubt a peer, one in a hundred are.
func lostOf(made, recorded uint64) (float64, error) {
	if recorded == 0 {
		return 0, fmt.Errorf("it has recorded none of %d calls", made)
	}
	if recorded > made+made/100+1 {
		return 0, fmt.Errorf("it has recorded %d of %d calls", recorded, made)
	}
	return max(0, 1-float64(recorded)/float64(made)), nil
}

// patience is how long a peer may take to start or to leave.
const patience = 30 * time.Second

// errHung says that a tool did not end when it was interrupted, and was killed.
var errHung = fmt.Errorf("how many hits it has recorded is not known: it had not ended %v after SIGINT", patience)

// peer measures one, and once more if it hangs, as bpftrace did once on a busy machine.
func (m *meter) peer(ctx context.Context, k *peer) error {
	err := m.peerOnce(ctx, k)
	if errors.Is(err, errHung) {
		err = m.peerOnce(ctx, k)
	}
	return err
}

// peerOnce measures one. It has begun when the text of work is changed, and has
// left when it is as it was.
func (m *meter) peerOnce(ctx context.Context, k *peer) error {
	tool, err := exec.LookPath(k.tool)
	if err != nil {
		return errors.New("it is not installed")
	}
	s := &scene{pid: m.p.cmd.Process.Pid, path: m.p.path, at: m.p.function("work"), dir: m.dir}
	row := Row{Kind: "peer", What: k.what}
	err = m.cost(&row, "work", k.floor, func() (between, out func() error, err error) {
		undefine := func() error { return nil }
		if k.event {
			if s.group, undefine, err = m.define("p", "work", fetched); err != nil {
				return nil, nil, err
			}
		}
		var said, printed bytes.Buffer
		cmd := exec.CommandContext(ctx, tool, k.args(s)...)
		cmd.Stdout, cmd.Stderr = &printed, &said
		var begin *remote
		if k.told {
			if begin, err = newRemote(cmd); err != nil {
				return nil, nil, errors.Join(err, undefine())
			}
		}
		before := m.p.made[s.at]
		if err := cmd.Start(); err != nil {
			begin.close()
			return nil, nil, errors.Join(fmt.Errorf("start %s: %w", k.tool, err), undefine())
		}
		ended := make(chan struct{})
		go func() { _ = cmd.Wait(); close(ended) }() // how it ends when interrupted is its own affair
		out = func() error {
			var hung error
			_ = cmd.Process.Signal(unix.SIGINT)
			select {
			case <-ended:
			case <-time.After(patience):
				hung = errHung
				_ = cmd.Process.Kill()
				<-ended
			}
			begin.close()
			if err := errors.Join(m.until(false, s.at, nil), undefine(), hung); err != nil || m.p.made[s.at] == before {
				return err
			}
			recorded, err := k.count(s, printed.String())
			if err != nil {
				return fmt.Errorf("find out how many hits it has recorded: %w", err)
			}
			row.Lost, err = lostOf(m.p.made[s.at]-before, recorded)
			return err
		}
		err = m.until(true, s.at, ended)
		if err == nil && begin != nil {
			err = begin.enable()
		}
		if err != nil {
			return nil, nil, because(errors.Join(err, out()), said.String())
		}
		return nil, out, nil
	})
	if err != nil {
		return err
	}
	m.report.Rows = append(m.report.Rows, row)
	return nil
}

// because adds the last line of what a tool said to an error.
func because(err error, said string) error {
	text := strings.TrimSpace(said)
	if err == nil || text == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, text[strings.LastIndexByte(text, '\n')+1:])
}

// until waits until a breakpoint stands at an address of the subject, or none.
func (m *meter) until(there bool, at uint64, ended <-chan struct{}) error {
	mem, err := os.Open(procfs.Process(m.p.cmd.Process.Pid).Path("mem"))
	if err != nil {
		return fmt.Errorf("look at the program to measure: %w", err)
	}
	defer func() { _ = mem.Close() }()
	var b [1]byte
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if _, err := mem.ReadAt(b[:], int64(at)); err != nil {
			return fmt.Errorf("look at the program to measure: %w", err)
		}
		if (b[0] == 0xcc) == there {
			return nil
		}
		select {
		case <-ended:
			return errors.New("it ended")
		default:
		}
	}
	if there {
		return fmt.Errorf("it put no breakpoint in within %v", patience)
	}
	return fmt.Errorf("it left its breakpoint in for %v", patience)
}
