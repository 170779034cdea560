package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// tracefs is where the kernel's tracing files are.
const tracefs = "/sys/kernel/tracing"

// uprobe is a row of the kernel's.
type uprobe struct {
	what  string
	fn    string
	def   string // p or r
	args  string
	floor floorKind
}

func uprobes() []uprobe {
	return []uprobe{
		{"kernel uprobe, an instruction that it emulates; 2 arguments", "pushed", "p", fetched, floorEntry},
		{"kernel uprobe, an instruction that it steps; 2 arguments", "work", "p", fetched, floorEntry},
		{"kernel uretprobe, an instruction that it emulates", "pushed", "r", " v=$retval", floorReturn},
		{"kernel uretprobe, an instruction that it steps", "work", "r", " v=$retval", floorReturn},
	}
}

// define defines an event of the kernel's at a function of the subject, in a
// group of this process's, and returns the group's name and what takes it out.
func (m *meter) define(def, fn, args string) (group string, out func() error, err error) {
	group = fmt.Sprintf("kprobe_bench_%d", m.p.cmd.Process.Pid)
	events := filepath.Join(tracefs, "uprobe_events")
	line := fmt.Sprintf("%s:%s/hit %s:%#x%s", def, group, m.p.path, m.p.function(fn)-textAt+page, args)
	if err := write(events, line); err != nil {
		return "", nil, err
	}
	return group, func() error { return write(events, "-:"+group+"/hit") }, nil
}

// uprobe measures a probe of the kernel, in a trace instance of its own: what
// others trace is not touched.
func (m *meter) uprobe(k *uprobe) error {
	row := Row{Kind: "uprobe", What: k.what}
	err := m.cost(&row, k.fn, k.floor, func() (between, out func() error, err error) {
		group, undefine, err := m.define(k.def, k.fn, k.args)
		if err != nil {
			return nil, nil, err
		}
		instance := filepath.Join(tracefs, "instances", group)
		if err := os.Mkdir(instance, 0o700); err != nil {
			return nil, nil, errors.Join(plainly(err), undefine())
		}
		enable := filepath.Join(instance, "events", group, "hit", "enable")
		if err := write(enable, "1"); err != nil {
			return nil, nil, errors.Join(err, os.Remove(instance), undefine())
		}
		return nil, func() error { return errors.Join(write(enable, "0"), undefine(), os.Remove(instance)) }, nil
	})
	if err != nil {
		return err
	}
	m.kernel[k.def+" "+k.fn] = row.NS[0]
	m.report.Rows = append(m.report.Rows, row)
	return nil
}

// write writes a line to a tracing file.
func write(path, line string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return plainly(err)
	}
	_, err = f.WriteString(line + "\n")
	return errors.Join(plainly(err), f.Close())
}

// plainly says what stands in the way of tracefs.
func plainly(err error) error {
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("the kernel has none, or its tracing files are not mounted: %w", err)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("its tracing files are for root: %w", err)
	}
	return err
}

// rdpid reports whether the processor has the instruction.
func rdpid() bool {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		if list, ok := strings.CutPrefix(line, "flags"); ok {
			return strings.Contains(strings.TrimSpace(list)+" ", " rdpid ")
		}
	}
	return false
}
