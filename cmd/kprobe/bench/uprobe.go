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
		{"kernel uretprobe", "pushed", "r", " v=$retval", floorReturn},
	}
}

// uprobe measures a probe of the kernel, in a trace instance of its own: what
// others trace is not touched.
func (m *meter) uprobe(k *uprobe) error {
	name := fmt.Sprintf("kprobe_bench_%d", m.p.cmd.Process.Pid)
	instance := filepath.Join(tracefs, "instances", name)
	events := filepath.Join(tracefs, "uprobe_events")
	fn := m.p.function(k.fn)
	row := Row{Kind: "uprobe", What: k.what, Floor: m.floor[k.floor]}
	var err error
	row.NS, row.Bare, err = m.cost(fn, func() (between, out func() error, err error) {
		if err := os.Mkdir(instance, 0o700); err != nil {
			return nil, nil, plainly(err)
		}
		enable := filepath.Join(instance, "events", name, "hit", "enable")
		out = func() error {
			return errors.Join(write(enable, "0"), write(events, "-:"+name+"/hit"), os.Remove(instance))
		}
		def := fmt.Sprintf("%s:%s/hit %s:%#x%s", k.def, name, m.p.path, fn-textAt+page, k.args)
		if err := write(events, def); err != nil {
			return nil, nil, errors.Join(err, os.Remove(instance))
		}
		if err := write(enable, "1"); err != nil {
			return nil, nil, errors.Join(err, out())
		}
		return func() error { return nil }, out, nil
	})
	if err != nil {
		return err
	}
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
