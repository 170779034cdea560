package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"kprobe/internal/procfs"
)

const uftraceWhat = "uftrace -P, entry and exit; 2 arguments"

// uftraceEach is the most that it is measured for: it writes every record to a
// file, some 30 MB in this time.
const uftraceEach = 100 * time.Millisecond

// uftrace measures uftrace(1), in one thread. It patches only a program that it
// starts, by a library that the loader loads first: so the subject is a linked
// one of its own, whose calls take turns with the floor's in the other.
func (m *meter) uftrace(ctx context.Context) (err error) {
	tool, err := exec.LookPath("uftrace")
	if err != nil {
		return errors.New("it is not installed")
	}
	dir, err := os.MkdirTemp(m.dir, "uftrace-")
	if err != nil {
		return fmt.Errorf("make a folder for it: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // Run removes what is above
	p, err := written(dir, 0, true)
	if err != nil {
		return err
	}
	data := filepath.Join(dir, "data")
	// Not ended with ctx: killed, it would leave its memory files in /dev/shm.
	cmd := exec.Command(tool, "record", "-P", "^work$", "-A", "work@arg1,arg2", "--no-libcall", "--no-event", "-d", data, p.path)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &said, &said, patience
	defer func() {
		_ = p.leave() // there is an error then, or it has left
		p.end()
		err = because(err, said.String())
	}()
	if err := p.run(cmd, 1); err != nil {
		return err
	}
	if p.pid, err = childOf(cmd.Process.Pid, p.path); err != nil {
		return err
	}
	if err := p.pin(); err != nil {
		return err
	}
	brief := *m
	brief.o.Each = min(m.o.Each, uftraceEach)
	row := Row{Kind: "peer", What: uftraceWhat}
	work := p.function("work")
	if err := brief.lanes(&row, []int{1}, lane{in: p, fn: work}, lane{in: p, fn: p.function("bare_work")}, floorBoth); err != nil {
		return err
	}
	if err := p.leave(); err != nil {
		return err
	}
	text, err := exec.CommandContext(ctx, tool, "report", "--no-pager", "-d", data).Output()
	if err != nil {
		return fmt.Errorf("find out how many calls it has recorded: %w", err)
	}
	recorded, err := reported(string(text), "work")
	if err != nil {
		return err
	}
	if row.Lost, err = lostOf(p.made[work], recorded); err != nil {
		return err
	}
	m.report.Rows = append(m.report.Rows, row)
	return nil
}

// childOf finds the child of a process that runs a file.
func childOf(pid int, path string) (int, error) {
	kids, err := procfs.Thread(pid, pid).Children()
	if err != nil {
		return 0, fmt.Errorf("find the program to measure: %w", err)
	}
	want, err := os.Stat(path)
	if err != nil {
		return 0, fmt.Errorf("find the program to measure: %w", err)
	}
	for _, kid := range kids {
		if info, err := os.Stat(procfs.Process(kid).Path("exe")); err == nil && os.SameFile(info, want) {
			return kid, nil
		}
	}
	return 0, fmt.Errorf("find the program to measure: process %d has no child that runs %s", pid, path)
}

// leave has the subject end by itself, and waits for the command that started it.
func (p *process) leave() error {
	for _, t := range p.threads {
		_ = t.to.Close()
	}
	late := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("end it: %w", err)
	}
	return nil
}

// reported finds a function's calls in the table of uftrace-report(1), whose last
// two columns are the calls and the function.
func reported(text, fn string) (uint64, error) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) >= 2 && f[len(f)-1] == fn {
			return strconv.ParseUint(f[len(f)-2], 10, 64)
		}
	}
	return 0, fmt.Errorf("its report has no calls of %s", fn)
}
