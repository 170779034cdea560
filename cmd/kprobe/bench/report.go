package bench

// Row is what one kind of probe costs. Its times are in nanoseconds.
type Row struct {
	Kind string // as the kernel's documentation abbreviates it
	What string
	// NS is the cost per hit for each of Report.Threads: the median of many
	// runs with the probe less that of as many without, taken in turns. Threads
	// hit at once, and each figure is what one of them sees.
	NS []float64
	// Bare is what the call costs that is probed, with one thread.
	Bare float64
	// Floor is the cost of what is written by hand and does the same, with one
	// thread, measured in turns with NS; 0 is none.
	Floor float64
	// Sequence is as Floor, in restartable sequences and without a locked instruction.
	Sequence float64
	// Kernel is the cost of the kernel's probe at the same instruction in the
	// same run, with one thread; 0 is none.
	Kernel float64
	// Lost is the share of hits of which no record was left.
	Lost float64
}

// Ratio is the cost with one thread by the floor; 0 if there is none.
func (r *Row) Ratio() float64 {
	if r.Floor <= 0 || len(r.NS) == 0 {
		return 0
	}
	return r.NS[0] / r.Floor
}

// SequenceRatio is the cost with one thread by Sequence; 0 if there is none.
func (r *Row) SequenceRatio() float64 {
	if r.Sequence <= 0 || len(r.NS) == 0 {
		return 0
	}
	return r.NS[0] / r.Sequence
}

// Cheaper is how many times the kernel's probe costs, with one thread; 0 if
// there is none.
func (r *Row) Cheaper() float64 {
	if r.Kernel <= 0 || len(r.NS) == 0 || r.NS[0] <= 0 {
		return 0
	}
	return r.Kernel / r.NS[0]
}

// Report is what a measurement found.
type Report struct {
	Threads []int // how many threads hit at once, in each column
	Rows    []Row
	// Skipped says what could not be measured here, and why.
	Skipped []string
	// Costs are what probes cost a program that hits none, if Options.All asked for them.
	Costs []Cost
	// Work is what kprobe takes for its work, if Options.All asked for it.
	Work []Work
	// Programs are what RunPrograms found.
	Programs []Program
}

// Cost is what something costs that a program does, without probes in it and with some
// that it doesn't hit.
type Cost struct {
	What string
	NS   float64 // without probes: the median of many runs, in ns
	With [Withs]Dearer
}

// Dearer is what it costs with probes.
type Dearer struct {
	NS float64
	// Ratio is the median of NS by that of a run without probes in another process, of
	// runs in turns. 1 is no cost.
	Ratio float64
}

// The ways in which probes are in a program, by which Cost.With goes.
const (
	WithText       = iota // no probe, but a page of its code was written to, as by any patch: the least
	WithLeft              // jumps that were left alone
	WithTrace             // jumps of a trace
	WithBreakpoint        // a trace with a breakpoint, which needs a tracer
	Withs
)

// Work is a figure of what kprobe does besides hits.
type Work struct {
	What  string
	Value float64
	Unit  string
}
