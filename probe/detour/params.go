package detour

import (
	"errors"
	"fmt"
	"iter"

	"kprobe/fetch"
	"kprobe/probe/asm"
)

// ErrUnsupported is wrapped by errors about what machine code in the target
// can't do; such a probe stays a breakpoint. The text says why.
var ErrUnsupported = errors.New("needs a breakpoint")

// Params are facts about the target and its memory file that all detours
// depend on. Addresses are the target's.
type Params struct {
	PerCPU    uint64 // where the area of CPU 0 is mapped (ring.Layout.PerCPU)
	AreaShift uint8  // ring.Layout.AreaShift
	TallyOff  int64  // ring.Layout.TallyOff
	TakenOff  int64  // ring.Layout.TakenOff, with Overwrite
	CPUMask   uint32 // ring.Layout.CPUMask
	RingSize  int64  // ring.Layout.RingSize
	Flags     uint64 // where the flags are mapped (ring.Layout.Flags)
	// Careful has the kernel asked before each load of the program's memory that may
	// fault: nobody is there who takes the fault (reads.go). NoReads says that it can't be
	// asked: a program that loads such memory is refused.
	Careful, NoReads bool
	// Overwrite says that the newest records take the place of the oldest
	// (ring.Layout.Overwrite), Spare that there are rings for snapshots
	// (ring.Layout.Spare).
	Overwrite, Spare bool
	// Gate is the address of a byte that is 0 where no probe takes hits; 0: there is
	// none.
	Gate uint64
	// Alive is that of a byte that is 0 where no trigger is looked at, either; 0: there
	// is none.
	Alive uint64
	// Control is where ring's section of that name is mapped, Kinds its first Kind.
	Control, Kinds uint64
	// Probes is where the number of probes is mapped (ring.ProbesOff).
	Probes uint64
	PID    int // thread group, as the record shows it
	TID    TID
	// Rdpid says that the CPU has rdpid (CPUID.7.0:ECX bit 22); without it lsl
	// tells the CPU's number.
	Rdpid bool
	// FSGSBase says that the kernel allows rdfsbase (AT_HWCAP2 bit 1).
	FSGSBase bool
	// Rseq is how far from the base of fs the C library's threads have their rseq
	// area, which is registered with RseqSignature. 0: they have none, and nobody
	// takes hits in restartable sequences. It needs a TID in fs without
	// a Path.
	Rseq int32
	// Births is the address of a number (u32) of tasks that could be mistaken for others:
	// while it isn't 0 no hit is taken in a sequence. Behind it is another, which isn't 0
	// once they are counted. 0: a tracer sees to that.
	Births uint64
	// NoRedZone says that the code has nothing below its stack pointer, as Go's:
	// a detour then takes 128 bytes less of a small stack.
	NoRedZone bool
	// MaxStack is how many bytes below the red zone a detour may use; 0 is
	// MaxStack. A Go function that checks its stack leaves 800 free (cmd/link,
	// StackLimit); one that doesn't (nosplit) may leave none.
	MaxStack int
	// StackEnd is where the first thread's stack ends; 0 is unknown.
	StackEnd uint64
	// Look, if any, has the detour look whether a goroutine's stack has room for its
	// frame. Where it has none a trap takes the hit, at Detour.NoRoom.
	Look *Look
	// Clock is where ring.ClockOff's clock is mapped; 0: programs that need
	// nanoseconds at the hit are refused.
	Clock uint64
	// Nested says that the process is in a pid namespace of its own, where its
	// threads have other numbers than those that a tracer knows: a record's
	// number is translated by whoever reads it, a value can't be.
	Nested bool
	// NoSyscall says that detours must not make system calls (a seccomp filter).
	NoSyscall bool
	// Sketch, if any, has a detour built in two steps: the first gives a longer one,
	// and fills the sketch, with which another is built as it is to be.
	Sketch *Sketch
	// Scratch, if any, is what one build after the other may use.
	Scratch *Scratch
	// Shared is the code that detours with texts go through; nil fails for them.
	Shared *Shared
	// Tally, if any, counts the hits of probes whose hits are only counted.
	Tally *Tally
	// NoProc says that /proc is not what it is elsewhere: paths of descriptors
	// can't be asked for in the program.
	NoProc bool
}

// Look is what a detour has to look for room on the stack of a goroutine of Go's
// (runtime.g), whose first words bound it.
type Look struct {
	// Free are the registers that may be changed, as bits by number; rax and rsp are
	// not used. It takes one that no program reads, or two where the flags stay.
	Free uint16
	// Flags says that the flags may be changed, too.
	Flags bool
	// TLS is where the address of the goroutine is, in the segment fs. 0: in r14.
	TLS int32
}

// TID is where a detour finds the number of its thread. The zero TID is one
// gettid at each hit.
type TID struct {
	// Seg is the segment that holds the thread's control block: asm.FS, or asm.DS
	// for none.
	Seg asm.Seg
	// Off is the offset in that segment. Without a Path the block's first word must
	// be its own address (System V ABI, Handling For Thread-Local Storage, variant
	// II), or the tracer is asked.
	Off int32
	// Path are further offsets: with Path {a, b} the u64 at seg:Off is a
	// pointer p, the one at p+a is q, and the number is the u32 at q+b. A
	// pointer or a number that is 0 is answered by gettid.
	Path []int32
}

// Probe is one probe of a detour.
type Probe struct {
	ID      uint32         // in the memory file
	Program *fetch.Program // compiled for this place
	// CountOnly leaves no records: hits and filtered hits are counted.
	CountOnly bool
	// Bins, if any, counts hits by a value, instead of a record for each.
	Bins *Bins
	// IP is the address that $ip and __probe_ip show.
	IP uint64
	// Anywhere says that calls of a return probe that counts may return by any return that
	// looks into their table in common.
	Anywhere bool
	// Inject, if any, ends calls at their function's entry. Such a probe takes no hits in
	// sequences.
	Inject *Injection
	// Control is what else is done at hits; nil is nothing.
	Control *Control
	// Birth, if any, is all that is done: no hit is taken.
	Birth *Birth
}

// Fault is one entry of the exception table: a thread that faults (SIGSEGV,
// SIGBUS) at the instruction At goes on at To, with all its registers.
type Fault struct{ At, To uint64 }

// Detour is finished code.
type Detour struct {
	Base uint64 // where it must lie
	Code []byte // who has written it may let it go
	// Copy is where the displaced instructions start: a thread that is sent
	// there, from Build's and BuildReturn's detours, takes no record.
	Copy uint64
	// NoRoom is the address of an int3 at which a thread stops whose stack has no
	// room for the detour. It has taken no hit, has its registers but those of
	// Params.Look, and goes on at Copy. 0: that doesn't happen.
	NoRoom uint64
	Faults []Fault
	Asks   []Ask
	// SharedFaults says that its threads may fault in the shared code, too.
	SharedFaults bool
	*undoing         // nil: of a detour that changes nothing
	size         int // of Code
}

// Pushes gives the instructions of prologues that write to the stack.
func (d *Detour) Pushes() iter.Seq[Push] {
	return func(yield func(Push) bool) {
		if d.undoing == nil {
			return
		}
		for _, s := range d.steps {
			if !yield(Push{d.Base + uint64(s.off), int(s.depth), s.ax, s.trampoline}) {
				return
			}
		}
	}
}

// mark says what the frame is from an instruction on.
type mark struct {
	saved []slot
	off   int32
	depth int32 // bytes that SP is below the site's
	word  int32 // depth of the saved flags word
	flags flagsPlace
	// keep is where the program's rax is, if axKept, or where the flags are, by
	// flagsKept.
	keep   asm.Reg
	axKept bool
	// taken is how many of the site's probes have taken their hits: recorded,
	// counted, or lost should the thread get no further.
	taken int32
	// skips says that the call is being ended: nothing is left but to return.
	skips bool
	// return trampoline says that it is the frame of a return probe's return trampolines.
	trampoline bool
}

type slot struct {
	reg asm.Reg
	off int32 // below the site's SP
}

type flagsPlace uint8

const (
	flagsLive  flagsPlace = iota // in the flags register
	flagsInAX                    // lahf, seto al
	flagsAdded                   // there, 127 added to al
	flagsSaved                   // that ax, on the stack at depth where the frame says
	flagsKept                    // that ax, in another register
	flagsGone                    // outside of the frame: displaced instructions, jumps
)

// NeedsNumber says why a detour can't be: until its threads' numbers can be read
// (Params.TID), it would have to ask the kernel.
const NeedsNumber = "the thread's number takes a system call, which seccomp rules may judge"

func unsupported(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, ErrUnsupported)...)
}
