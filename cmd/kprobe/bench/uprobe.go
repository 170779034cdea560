package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"kprobe/internal/procfs"
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
		at := m.p.function(k.fn)
		before := m.p.made[at]
		return nil, func() error {
			recorded, err := hitsOf(m.p.path)
			if err == nil {
				row.Lost, err = lostOf(m.p.made[at]-before, recorded)
			}
			return errors.Join(err, write(enable, "0"), undefine(), os.Remove(instance))
		}, nil
	})
	if err != nil {
		return err
	}
	m.kernel[k.def+" "+k.fn] = row.NS[0]
	m.report.Rows = append(m.report.Rows, row)
	return nil
}

// hitsOf reads how often the event at a file was hit, and recorded: where a
// record finds no room the oldest make way for it.
func hitsOf(path string) (uint64, error) {
	b, err := os.ReadFile(filepath.Join(tracefs, "uprobe_profile"))
	if err != nil {
		return 0, plainly(err)
	}
	return profiled(string(b), path)
}

// profiled finds the hits of a file's event in the text of uprobe_profile, whose
// lines are FILE EVENT HITS. The file tells whose event it is.
func profiled(text, path string) (n uint64, err error) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 3 && f[0] == path && f[1] == "hit" {
			return strconv.ParseUint(f[2], 10, 64)
		}
	}
	return 0, fmt.Errorf("the kernel has no count for %s", path)
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
func rdpid() bool { return procfs.CPUHas("rdpid") }
