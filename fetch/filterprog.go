package fetch

// Cmp is how a predicate compares.
type Cmp uint8

// The comparisons.
const (
	CmpEq Cmp = iota
	CmpNe
	CmpLt
	CmpLe
	CmpGt
	CmpGe
	CmpAnd  // value & operand is not zero
	CmpGlob // text matches a pattern of *, ? and […]
)

// Operand is what a predicate compares with.
type Operand uint8

// The kinds of operand.
const (
	OperandUnsigned Operand = iota // Val
	OperandSigned                  // Val as int64
	OperandFloat                   // Val as the bits of a float64
	OperandText                    // Text
	OperandCPUs                    // CPUs, a bit mask of CPU numbers
	OperandRange                   // Val ≤ v < End: inside a function
)

// FieldKind says where a predicate's value comes from.
type FieldKind uint8

// The fields of filters.
const (
	FieldArg      FieldKind = iota // argument Arg
	FieldPID                       // pid, common_tgid: the thread group
	FieldTID                       // tid, common_pid: the thread
	FieldCPU                       // cpu, CPU, common_cpu
	FieldComm                      // comm, COMM
	FieldIP                        // __probe_ip
	FieldDuration                  // $duration: since the entry value Arg
)

// Pred is one predicate of a filter. If its result equals When, Target is next, otherwise the
// following predicate.
type Pred struct {
	Field   FieldKind
	Arg     int // of FieldArg, and of FieldDuration
	Type    Type
	Cmp     Cmp
	Operand Operand
	Val     uint64
	End     uint64
	Text    string
	CPUs    []uint64
	When    bool
	Target  int
}

// FilterProgram is a filter compiled to a chain of branches, as the kernel's
// (kernel/trace/trace_events_filter.c). Targets lead forward only: to another
// predicate, to Accept or to Reject. Running off the end accepts.
//
// A predicate over a value that faulted is false, whatever it compares.
type FilterProgram struct {
	Preds []Pred
}

// Accept is the target that lets the hit pass.
func (f *FilterProgram) Accept() int { return len(f.Preds) }

// Reject is the target that drops the hit.
func (f *FilterProgram) Reject() int { return len(f.Preds) + 1 }

// passes evaluates the filter with what each predicate is found to be.
func (f *FilterProgram) passes(test func(*Pred) bool) bool {
	for i := 0; i < len(f.Preds); {
		q := &f.Preds[i]
		if test(q) != q.When {
			i++
			continue
		}
		// Targets lead forward; anything else would be no program of bind's.
		if q.Target <= i || q.Target > len(f.Preds) {
			return false
		}
		i = q.Target
	}
	return true
}
