package bench

import (
	"errors"
	"math"
	"runtime"
	"slices"
	"time"
)

// caller calls a function of its own n times in each of so many threads, and
// tells how long a call took in ns, the mean of the threads.
type caller interface {
	call(threads int, fn uint64, n int) (float64, error)
}

// lane is a function and how many threads call it at once, one of those that are measured in
// turns.
type lane struct {
	in      caller
	fn      uint64
	threads int
	// between, if not nil, is called before each run.
	between func() error
}

// meter measures one row after the other.
type meter struct {
	o      Options
	report *Report
	dir    string // for files
	p      *process
	// hand is a process like p that is traced by hand.
	hand *process
	// kernel is what the kernel's probes cost in one thread, by "p" or "r" and
	// the function.
	kernel map[string]float64
}

const (
	// most is how many hits fit into a ring between two looks of its reader.
	most, least = 16000, 20
	// lap is how many runs of most hits in one thread fill a ring.
	lap = 5
	// warm is how many calls tell whether a call is dear, from so many ns on, and
	// tries how often they may say so wrongly, because another program gets the processor.
	warm, dear, tries = 100, 500, 6
	// faulted is from how many ns on it can't be pages alone that make calls dear: in warm
	// calls the ring's first lap faults in a page or two. surely is from how many ns on calls
	// are dear whatever else there was.
	faulted, surely = 5000, 1_000_000
	// turn is about how long a run of dear calls takes.
	turn = 2000 * time.Microsecond
	// fewest is how many runs make a median, however long they take.
	fewest = 5
)

// rounds gives for each lane the median of a call's time in ns.
func (m *meter) rounds(lanes ...lane) ([]float64, error) {
	times, err := m.runs(lanes...)
	if err != nil {
		return nil, err
	}
	medians := make([]float64, len(lanes))
	for i, list := range times {
		medians[i] = median(list)
	}
	return medians, nil
}

// median sorts a list and gives what is in its middle.
func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// runs runs the lanes in turns for as long as a row may take for each number of threads, and
// gives for each lane a call's time in ns in each run. So what else the machine does in that
// time meets all of them.
func (m *meter) runs(lanes ...lane) ([][]float64, error) {
	times, calls := make([][]float64, len(lanes)), make([]int, len(lanes))
	run := func(l *lane, n int) (float64, error) {
		if l.between != nil {
			if err := l.between(); err != nil {
				return 0, err
			}
		}
		return l.in.call(l.threads, l.fn, n)
	}
	numbers := map[int]bool{}
	for i := range lanes {
		l := &lanes[i]
		numbers[l.threads] = true
		var err error
		if calls[i], err = warmUp(l.threads, func(n int) (float64, error) { return run(l, n) }); err != nil {
			return nil, err
		}
	}
	each := m.o.Each * time.Duration(len(numbers))
	for start := time.Now(); len(times[0]) < fewest || time.Since(start) < each; {
		for i := range lanes {
			ns, err := run(&lanes[i], calls[i])
			if err != nil {
				return nil, err
			}
			times[i] = append(times[i], ns)
		}
	}
	return times, nil
}

// warmUp has a lane's function called until its calls cost what later ones do, and returns how
// many make a run. The first lap of each ring faults its pages in, which can make a cheap hit
// seem dear: so what may be cheap is asked again after that lap.
func warmUp(threads int, run func(calls int) (ns float64, err error)) (calls int, err error) {
	ask := func() (float64, error) {
		lowest := math.Inf(1)
		for n := 0; lowest > dear && n < tries; n++ {
			ns, err := run(warm)
			if err != nil {
				return 0, err
			}
			if lowest = min(lowest, ns); lowest > surely {
				break
			}
		}
		return lowest, nil
	}
	ns, err := ask()
	if err != nil {
		return 0, err
	}
	if ns <= faulted {
		calls = max(most/threads, least)
		for range lap * min(threads, runtime.NumCPU()) {
			if _, err := run(calls); err != nil {
				return 0, err
			}
		}
		if ns > dear {
			if ns, err = ask(); err != nil {
				return 0, err
			}
		}
	}
	if ns > dear {
		return max(int(float64(turn.Nanoseconds())/ns), least), nil
	}
	return calls, nil
}

// armed puts probes in and returns what is to be called before each run, nil
// being nothing, and what takes them out.
type armed func() (between, out func() error, err error)

// cost fills a row with what probes on a function of the subject cost, for each
// number of threads.
func (m *meter) cost(row *Row, fn string, floor floorKind, put armed) error {
	between, out, err := put()
	if err != nil {
		return err
	}
	err = m.lanes(row, m.o.Threads, lane{in: m.p, fn: m.p.function(fn), between: between}, lane{in: m.p, fn: m.p.function("bare_" + fn)}, floor)
	return errors.Join(err, out())
}

// lanes measures a function with and without probes, each number of threads in turns with
// the others, and the floors, with the first number, in turns with them.
func (m *meter) lanes(row *Row, numbers []int, with, bare lane, floor floorKind) error {
	var list []lane
	add := func(l lane, threads int) {
		l.threads = threads
		list = append(list, l)
	}
	// The floors' call is work's, whatever the row's function is.
	floors := slices.DeleteFunc([]floorKind{floor, floor.sequenced()}, func(k floorKind) bool { return !m.has(k) })
	if len(floors) > 0 {
		work := m.by(floor)
		add(lane{in: work, fn: work.function("bare_work")}, numbers[0])
		for _, k := range floors {
			add(lane{in: work, fn: work.function(k.name())}, numbers[0])
		}
	}
	first := len(list)
	for _, threads := range numbers {
		add(bare, threads)
		add(with, threads)
	}
	got, err := m.rounds(list...)
	if err != nil {
		return err
	}
	row.Bare = got[first]
	for i := range numbers {
		row.NS = append(row.NS, got[first+2*i+1]-got[first+2*i])
	}
	for n, k := range floors {
		if over := got[1+n] - got[0]; k.inSequences() {
			row.Sequence = over
		} else {
			row.Floor = over
		}
	}
	return nil
}

// by is the process in which a floor is measured.
func (m *meter) by(k floorKind) *process {
	if k.stops() {
		return m.hand
	}
	return m.p
}

// has reports whether a floor can be measured here.
func (m *meter) has(k floorKind) bool {
	return k != noFloor && (k.stops() || k == floorTime || k.inSequences() && sequences() || !k.inSequences() && rdpid())
}

// floors measures what is written by hand, against work.
func (m *meter) floors() error {
	for k := floorCount; k < floorKinds; k++ {
		if !m.has(k) {
			continue
		}
		row := Row{Kind: "floor", What: k.what()}
		if k == floorStep {
			row.Kind = "k"
		}
		p := m.by(k)
		if err := m.lanes(&row, m.o.Threads, lane{in: p, fn: p.function(k.name())}, lane{in: p, fn: p.function("bare_work")}, noFloor); err != nil {
			return err
		}
		m.report.Rows = append(m.report.Rows, row)
	}
	return nil
}

func (m *meter) skip(why string) { m.report.Skipped = append(m.report.Skipped, why) }
