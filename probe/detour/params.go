package detour

import (
	"errors"
	"fmt"
	"iter"

	"kprobe/fetch"
	"kprobe/probe/asm"
)

// ErrUnsupported is wrapped by errors about what machine code in the target can't do. Such a
// probe stays a breakpoint. The text says why.
var ErrUnsupported = errors.New("needs a breakpoint")

// Params are the facts about the target and its memory file on which all detours depend.
// Addresses are the target's.
type Params struct {
	PerCPU    uint64 // where the area of CPU 0 is mapped (ring.Layout.PerCPU)
	AreaShift uint8  // ring.Layout.AreaShift
	TallyOff  int64  // ring.Layout.TallyOff
	TakenOff  int64  // ring.Layout.TakenOff, with Overwrite
	CPUMask   uint32 // ring.Layout.CPUMask
	RingSize  int64  // ring.Layout.RingSize
	Flags     uint64 // where the flags are mapped (ring.Layout.Flags)
	// Careful makes detours ask the kernel before each load of the program's memory that may
	// fault, because no tracer will catch the fault (reads.go). NoReads says that the kernel
	// can't be asked, so programs that load such memory are refused.
	Careful, NoReads bool
	// Known is where it is noted which memory is there, KnownSize bytes (known.go); 0 is nowhere.
	Known uint64
	// Overwrite says that the newest records overwrite the oldest (ring.Layout.Overwrite).
	// Spare says that there are rings for snapshots (ring.Layout.Spare).
	Overwrite, Spare bool
	// Gate is the address of a byte that is 0 while no probe may take hits; 0 is none.
	Gate uint64
	// Alive is the address of a byte that is 0 while triggers may not act, either; 0 is none.
	Alive uint64
	// Control is where ring's section of that name is mapped, Kinds its first Kind.
	Control, Kinds uint64
	// Probes is where the number of probes is mapped (ring.ProbesOff).
	Probes uint64
	PID    int // thread group, as the record shows it
	TID    TID
	// Rdpid says that the CPU has rdpid (CPUID.7.0:ECX bit 22). Without it lsl gives the
	// CPU's number.
	Rdpid bool
	// FSGSBase says that the kernel allows rdfsbase (AT_HWCAP2 bit 1).
	FSGSBase bool
	// Rseq is the distance of the rseq areas of the C library's threads from the base of
	// fs. They are registered with RseqSignature. 0 means that there are none, and no hits
	// are taken in restartable sequences. It needs a TID in fs without a Path.
	Rseq int32
	// Births is the address of the number (u32) of tasks that could be mistaken for others.
	// While it isn't 0, no hit is taken in a sequence. It is followed by another word,
	// which isn't 0 once such tasks are counted. 0 means that a tracer watches births
	// instead.
	Births uint64
	// Calls is the address of the number (u32) of threads that ask the kernel for something (asks.go),
	// which is followed by a word that isn't 0 once none may. 0 means that a tracer sees rules.
	Calls uint64
	// NoRedZone says that the code has nothing below its stack pointer, as Go's. A detour
	// then takes 128 bytes less of a small stack.
	NoRedZone bool
	// MaxStack is how many bytes below the red zone a detour may use; 0 is the constant
	// MaxStack. A Go function that checks its stack leaves 800 bytes free (cmd/link,
	// StackLimit); one that doesn't (nosplit) may leave none.
	MaxStack int
	// StackEnd is the end of the first thread's stack; 0 is unknown.
	StackEnd uint64
	// Stacks are the stack pointers of the threads, as they were when these were stopped to find all this.
	Stacks []uint64
	// Look, if not nil, makes the detour check whether a goroutine's stack has room for its
	// frame. If not, a trap takes the hit, at Detour.NoRoom.
	Look *Look
	// Clock is the address of the clock at ring.ClockOff. If it is 0, programs that need
	// nanoseconds at the hit are refused.
	Clock uint64
	// Nested says that the process is in a pid namespace of its own, where its threads have
	// other numbers than those that the tracer knows. The reader can translate the number
	// in a record, but not a value.
	Nested bool
	// NoSyscall says that detours must not make system calls (a seccomp filter).
	NoSyscall bool
	// Sketch, if not nil, lets a detour be built in two steps. The first build gives a
	// longer detour and fills the sketch. The second, with the sketch, gives the final one.
	Sketch *Sketch
	// Scratch, if not nil, is shared by successive builds. The next one overwrites the Code of a detour that was
	// built with a sketch, too.
	Scratch *Scratch
	// Shared is the code that detours with texts use. If it is nil, such detours fail.
	Shared *Shared
	// Tally, if any, counts the hits of probes whose hits are only counted. OwnCounts says
	// that detours count by themselves nevertheless, where that is all that they do.
	Tally     *Tally
	OwnCounts bool
	// Ample says that few returns are probed, so that entries may be longer if calls cost
	// less by it: they note their calls themselves (exit.go).
	Ample bool
	// FlagsDead says that the program overwrites the status flags behind the site before
	// anything can look at them: a detour may change them.
	FlagsDead bool
	// NoProc says that the process doesn't see the usual /proc, so that a detour can't ask
	// for paths of descriptors.
	NoProc bool
}

// Look says how a detour checks for room on a goroutine's stack. The first words of its
// runtime.g are the bounds.
type Look struct {
	// Free are the registers that may be changed, as bits by number; rax and rsp are not
	// used. The check takes one that no program reads, or two if the flags must stay.
	Free uint16
	// Flags says that the flags may be changed, too.
	Flags bool
	// TLS is the offset from fs of the goroutine's address. 0 means that it is in r14.
	TLS int32
}

// TID says where a detour finds the number of its thread. The zero TID means one gettid for
// each hit.
type TID struct {
	// Seg is the segment that holds the thread's control block: asm.FS, or asm.DS
	// for none.
	Seg asm.Seg
	// Off is the offset in that segment. Without a Path, the block's first word must be its
	// own address (System V ABI, Handling For Thread-Local Storage, variant II). If it
	// isn't, the tracer is asked.
	Off int32
	// Path are further offsets: with Path {a, b} the u64 at seg:Off is a pointer p, the one
	// at p+a is q, and the number is the u32 at q+b. If a pointer or the number is 0,
	// gettid is called.
	Path []int32
}

// Probe is one probe of a detour.
type Probe struct {
	ID      uint32         // in the memory file
	Program *fetch.Program // compiled for this place
	// CountOnly leaves no records: hits and filtered hits are only counted.
	CountOnly bool
	// Bins, if not nil, counts hits by a value, instead of a record for each.
	Bins *Bins
	// IP is the address that $ip and __probe_ip show.
	IP uint64
	// Anywhere says that calls of a return probe that only counts may return by any return
	// that looks into their common table.
	Anywhere bool
	// Inject, if not nil, ends calls at their function's entry. Such a probe takes no hits
	// in sequences.
	Inject *Injection
	// Control is what else is done at hits; nil is nothing.
	Control *Control
	// Birth, if not nil, is all that is done: no hit is taken.
	Birth *Birth
	// Landing, if not nil, is all that is done, and the probe is the detour's only one.
	Landing *Landing
}

// Fault is an entry of the exception table: a thread that faults (SIGSEGV, SIGBUS) at the
// instruction At continues at To, with all its registers.
type Fault struct{ At, To uint64 }

// Detour is finished code.
type Detour struct {
	Base      uint64 // where it must lie
	Code      []byte // may be set to nil once it is written
	size      uint32 // of Code
	displaced uint32 // offset of the displaced instructions
	Kept
}

// Kept is what remains of a detour once its code is written. It is small, because a session may have hundreds of
// thousands: what few detours have is apart.
type Kept struct {
	*undoing        // nil: the detour changes nothing
	stops    *stops // nil: there are none
}

// Detour is the detour of which k was kept, without its code: where it lies, how large it is, and where the copies of
// the displaced instructions are in it.
func (k Kept) Detour(base uint64, size, displaced uint32) Detour {
	return Detour{Base: base, size: size, displaced: displaced, Kept: k}
}

// stops are the instructions of a detour at which a thread may stop. They aren't changed once a detour has them.
type stops struct {
	noRoom uint64
	faults []Fault
	asks   []Ask
	// shared says that its threads may also fault in the shared code.
	shared bool
}

// sharedOnly is for detours whose threads may stop in the shared code only.
var sharedOnly = &stops{shared: true}

// Copy is the start of the displaced instructions. A thread that is sent there, from Build's and
// BuildReturn's detours, takes no record.
func (d *Detour) Copy() uint64 { return d.Base + uint64(d.displaced) }

// NoRoom is the address of an int3 at which a thread stops whose stack has no room for the detour. It has
// taken no hit, has its registers except those of Params.Look, and continues at Copy. 0 means that this
// doesn't happen.
func (d *Detour) NoRoom() uint64 { return d.mayStop().noRoom }

// Faults is the detour's exception table.
func (d *Detour) Faults() []Fault { return d.mayStop().faults }

// SharedFaults says that the detour's threads may also fault in the shared code.
func (d *Detour) SharedFaults() bool { return d.mayStop().shared }

// Asks are the instructions by which a thread in the detour may ask the tracer.
func (d *Detour) Asks() []Ask { return d.mayStop().asks }

func (d *Detour) mayStop() stops {
	if d.stops == nil {
		return stops{}
	}
	return *d.stops
}

// noRoomAt sets NoRoom.
func (d *Detour) noRoomAt(at uint64) {
	s := d.mayStop()
	s.noRoom = at
	d.stops = &s
}

// Pushes yields the instructions of prologues that write to the stack.
func (d *Detour) Pushes() iter.Seq[Push] {
	base, u := d.Base, d.undoing
	return func(yield func(Push) bool) {
		if u == nil {
			return
		}
		for _, s := range u.steps {
			if !yield(Push{base + uint64(s.off), int(s.depth), s.ax, s.trampoline}) {
				return
			}
		}
	}
}

// mark describes the frame from an instruction on.
type mark struct {
	saved []slot
	off   int32
	depth int32 // bytes that SP is below the site's
	word  int32 // depth of the saved flags word
	flags flagsPlace
	// keep is the register that has the program's rax, if axKept, or the flags, if flagsKept.
	keep   asm.Reg
	axKept bool
	// taken is how many of the site's probes have taken their hits: recorded them, counted
	// them, or lost them if the thread gets no further.
	taken int32
	// skips says that the call is being ended: nothing remains but to return.
	skips bool
	// trampoline says that it is the frame of a return probe's return trampolines.
	trampoline bool
	// writing says how far the record has got that is being written.
	writing Writing
}

type slot struct {
	reg asm.Reg
	off int32 // below the site's SP
}

type flagsPlace uint8

const (
	flagsLive  flagsPlace = iota // in the flags register
	flagsInAX                    // lahf, seto al
	flagsAdded                   // in ax, with 127 added to al
	flagsSaved                   // ax as in flagsInAX is on the stack, at depth mark.word
	flagsKept                    // ax as in flagsInAX is in register mark.keep
	flagsGone                    // outside the frame: displaced instructions, jumps
)

// NeedsNumber is the reason why a detour can't be built until threads' numbers can be read (Params.TID): it
// would have to ask the kernel.
const NeedsNumber = "the thread's number takes a system call, which seccomp rules may forbid"

func unsupported(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, ErrUnsupported)...)
}
