package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/fetch"
	"kprobe/internal/plural"
	"kprobe/internal/procfs"
	"kprobe/output"
	"kprobe/probe"
)

// work measures what kprobe does besides hits.
func (m *meter) work(ctx context.Context) error {
	for _, f := range []output.Form{output.Text, output.JSON} {
		if err := m.lines(ctx, f); err != nil {
			return fmt.Errorf("measure how fast lines are written: %w", err)
		}
	}
	if err := m.recording(ctx); err != nil {
		return fmt.Errorf("measure how fast hits are recorded: %w", err)
	}
	if err := m.arming(ctx); err != nil {
		return fmt.Errorf("measure how fast probes are armed: %w", err)
	}
	if err := m.cycles(ctx); err != nil {
		return fmt.Errorf("measure how fast a probe comes and goes: %w", err)
	}
	return nil
}

func (m *meter) figure(value float64, unit, what string, args ...any) {
	m.report.Work = append(m.report.Work, Work{fmt.Sprintf(what, args...), value, unit})
}

// lines measures how many lines a core prints: the time is the processor's, of
// all that is done for a record from the ring to the file, which is
// /dev/null. Then how many all processors print: the time is the clock's, for records
// that the program leaves in the ring faster than that.
func (m *meter) lines(ctx context.Context, form output.Form) error {
	name := map[output.Form]string{output.Text: "lines of text", output.JSON: "lines of JSON"}[form]
	n, spent, _, err := m.printed(ctx, form, 0, 1)
	if err != nil {
		return err
	}
	m.figure(n/spent.Seconds(), "1/s", "%s that a core writes, 2 arguments", name)
	cpus := runtime.GOMAXPROCS(0)
	n, _, took, err := m.printed(ctx, form, cpus, recordRing/(2*32*most))
	if err != nil {
		return err
	}
	m.figure(n/took.Seconds(), "1/s", "%s that %s write, 2 arguments", name, plural.Of(cpus, "CPU", "CPUs"))
	return nil
}

// processor is how much time of processors this process has taken.
func processor() (time.Duration, error) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("read how much time was taken: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// thousand is how many functions a glob of batches, and one of memory's, means.
const thousand = 1000

// batches are how many probes are armed at once; the globs choose them.
var batches = []struct {
	n    int
	glob string
}{{1, "many_00000"}, {thousand, "many_00*"}, {10000, "many_*"}}

// turns is how often a batch is armed; what is told is the median.
const turns = 3

// arming measures how long batches of probes take to be armed and taken out,
// for how long the program stands still, and what memory it takes.
func (m *meter) arming(ctx context.Context) error {
	dir, err := os.MkdirTemp(m.dir, "many-")
	if err != nil {
		return err
	}
	p, err := start(dir, 1, batches[len(batches)-1].n)
	if err != nil {
		return err
	}
	defer p.end()
	ms := func(list []time.Duration) float64 {
		slices.Sort(list)
		return float64(list[len(list)/2].Nanoseconds()) / 1e6
	}
	if err := m.memory(ctx, p); err != nil {
		return err
	}
	first := 0
	for _, b := range batches {
		d, err := fetch.Parse("p:many " + b.glob + fetched)
		if err != nil {
			return err
		}
		var armed, out, longest, sum []time.Duration
		var grown []int
		for range turns {
			bare, err := resident(p)
			if err != nil {
				return err
			}
			begin := time.Now()
			s, err := probe.Attach(ctx, []int{p.cmd.Process.Pid}, probe.Options{})
			if err != nil {
				return err
			}
			if err := s.Arm(ctx, []*fetch.Def{d}); err != nil {
				return errors.Join(err, s.Close(ctx))
			}
			armed = append(armed, time.Since(begin))
			full, err := resident(p)
			places := s.Stats()[0].Places
			begin = time.Now()
			if err := errors.Join(err, s.Close(context.WithoutCancel(ctx))); err != nil {
				return err
			}
			if places != b.n {
				return fmt.Errorf("%d places were armed for %s", places, b.glob)
			}
			out = append(out, time.Since(begin))
			long, all := s.Pauses()
			longest, sum = append(longest, long), append(sum, all)
			grown = append(grown, full-bare)
		}
		// A page that the kernel takes back or brings in meanwhile counts too.
		slices.Sort(grown)
		took := grown[len(grown)/2]
		m.figure(ms(armed), "ms", "%d probes: from attaching until they are armed", b.n)
		m.figure(ms(out), "ms", "%d probes: taken out", b.n)
		m.figure(ms(longest), "ms", "%d probes: the program stands still, at the longest", b.n)
		m.figure(ms(sum), "ms", "%d probes: the program stands still, in all", b.n)
		if b.n == 1 {
			first = took
			continue
		}
		m.figure(float64(took-first)/float64(b.n-1), "bytes", "%d probes: memory of the program that each takes", b.n)
	}
	return nil
}

// memory measures what other probes take of the program's memory but for the
// instances of returns: each the difference between 1,000 and one.
func (m *meter) memory(ctx context.Context, p *process) error {
	for _, k := range []struct{ places, args, what string }{
		{"p:many many_", fetched + " s=+0(%si):string", "probes with a string"},
		{"r:many many_", " v=$retval", "return probes, by the function's exit"},
		{"r:many forked_", " v=$retval", "return probes, by return trampolines"},
	} {
		var grown [2]int
		for i, glob := range []string{"00000", "00*"} {
			d, err := fetch.Parse(k.places + glob + k.args)
			if err != nil {
				return err
			}
			bare, err := residentCode(p)
			if err != nil {
				return err
			}
			s, err := probe.Attach(ctx, []int{p.cmd.Process.Pid}, probe.Options{})
			if err != nil {
				return err
			}
			err = s.Arm(ctx, []*fetch.Def{d})
			full, rerr := residentCode(p)
			st := s.Stats()
			if err := errors.Join(err, rerr, s.Close(context.WithoutCancel(ctx))); err != nil {
				return err
			}
			if want := []int{1, thousand}[i]; st[0].Places != want || st[0].Trapped != 0 {
				return fmt.Errorf("%d of %d places were armed for %s, %d by breakpoints", st[0].Places, want, k.what, st[0].Trapped)
			}
			grown[i] = full - bare
		}
		m.figure(float64(grown[1]-grown[0])/(thousand-1), "bytes", "%d %s: memory of the program that each takes, instances apart", thousand, k.what)
	}
	return nil
}

// resident is the memory that a process has in use, in bytes, but for what it
// shares with kprobe: the rings are as large for one probe as for many.
func resident(p *process) (int, error) {
	return residentOf(p.cmd.Process.Pid)
}

// residentCode is the part of a process's memory that is executable and of no file: of a
// file the kernel brings in whole stretches, as it likes.
func residentCode(p *process) (int, error) {
	b, err := os.ReadFile(procfs.Process(p.cmd.Process.Pid).Path("smaps"))
	if err != nil {
		return 0, fmt.Errorf("read the program's size: %w", err)
	}
	sum, code := 0, false
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		switch {
		case len(f) >= 5 && strings.Contains(f[0], "-"):
			code = strings.Contains(f[1], "x") && len(f) == 5
		case code && len(f) >= 2 && f[0] == "Rss:":
			var kb int
			if _, err := fmt.Sscan(f[1], &kb); err != nil {
				return 0, fmt.Errorf("read the program's size: %w", err)
			}
			sum += kb << 10
		}
	}
	return sum, nil
}

// cycles measures how long it takes to put a probe in and take it out, while
// the program runs and others stay.
func (m *meter) cycles(ctx context.Context) error {
	stay, err := fetch.Parse("p:stay pushed" + fetched)
	if err != nil {
		return err
	}
	comes, err := fetch.Parse("p:comes work" + fetched)
	if err != nil {
		return err
	}
	s, err := probe.Attach(ctx, []int{m.p.cmd.Process.Pid}, probe.Options{})
	if err != nil {
		return err
	}
	if err := s.Arm(ctx, []*fetch.Def{stay}); err != nil {
		return errors.Join(err, s.Close(ctx))
	}
	n := 0
	start := time.Now()
	for ; err == nil && (n < fewest || time.Since(start) < m.o.Each); n++ {
		var link *probe.Link
		if link, err = s.Add(ctx, []*fetch.Def{comes}); err == nil {
			err = link.Close(ctx)
		}
	}
	took := time.Since(start)
	if err := errors.Join(err, s.Close(context.WithoutCancel(ctx))); err != nil {
		return err
	}
	m.figure(float64(took.Microseconds())/1e3/float64(n), "ms", "a probe is put in and taken out, another stays")
	return nil
}
