package detour

import (
	"errors"
	"fmt"

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
	CPUMask   uint32 // ring.Layout.CPUMask
	RingSize  int64  // ring.Layout.RingSize
	Flags     uint64 // where the flags are mapped (ring.Layout.Flags)
	PID       int    // thread group, as the record shows it
	TID       TID
	// Rdpid says that the CPU has rdpid (CPUID.7.0:ECX bit 22); without it lsl
	// tells the CPU's number.
	Rdpid bool
	// FSGSBase says that the kernel allows rdfsbase (AT_HWCAP2 bit 1).
	FSGSBase bool
	// NoRedZone says that the code has nothing below its stack pointer, as Go's:
	// a detour then takes 128 bytes less of a small stack.
	NoRedZone bool
	// MaxStack is how many bytes below the red zone a detour may use; 0 is
	// MaxStack. A Go function that checks its stack leaves 800 free (cmd/link,
	// StackLimit); one that doesn't (nosplit) may leave none.
	MaxStack int
	// StackEnd is where the first thread's stack ends; 0 is unknown.
	StackEnd uint64
	// GoLook has the detour look whether the stack has room for its frame: r14
	// is a goroutine of Go's (runtime.g), whose first words bound its stack, and
	// r12 and the flags are free, as where a function of Go's compiler starts or
	// returns. Where there is no room a trap takes the hit, at Detour.NoRoom.
	GoLook bool
	// GoKeep says that the flags are not free where GoLook is set, but r13 is.
	GoKeep bool
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
	// Shared is the code that detours with texts go through; nil fails for them.
	Shared *Shared
	// NoProc says that /proc is not what it is elsewhere: paths of descriptors
	// can't be asked for in the program.
	NoProc bool
}

// TID is where a detour finds the number of its thread. The zero TID is one
// gettid at each hit.
type TID struct {
	// Seg is the segment that holds the thread's control block: asm.FS or
	// asm.GS, or asm.DS for none.
	Seg asm.Seg
	// Off is the offset in that segment.
	Off int32
	// Path are further offsets: with Path {a, b} the u64 at seg:Off is a
	// pointer p, the one at p+a is q, and the number is the u32 at q+b. A
	// pointer that is 0 is answered by gettid. Those that aren't must be
	// readable.
	Path []int32
}

// Probe is one probe of a detour.
type Probe struct {
	ID      uint32         // in the memory file
	Program *fetch.Program // compiled for this place
	// CountOnly leaves no records: hits and filtered hits are counted.
	CountOnly bool
	// IP is the address that $ip and __probe_ip show.
	IP uint64
}

// Fault is one entry of the exception table: a thread that faults (SIGSEGV,
// SIGBUS) at the instruction At goes on at To, with all its registers.
type Fault struct{ At, To uint64 }

// Detour is finished code.
type Detour struct {
	Base uint64 // where it must lie
	Code []byte
	// Copy is where the displaced instructions start: a thread that is sent
	// there, from Build's and BuildReturn's detours, takes no record.
	Copy uint64
	// NoRoom is the address of an int3 at which a thread stops whose stack has no
	// room for the detour. It has taken no hit, has its registers but r12, and
	// goes on at Copy. 0: that doesn't happen.
	NoRoom uint64
	Faults []Fault
	// SharedFaults says that its threads may fault in the shared code, too.
	SharedFaults bool
	marks        []mark
}

// mark says what the frame is from an instruction on.
type mark struct {
	saved []slot
	off   int32
	depth int32 // bytes that SP is below the site's
	word  int32 // depth of the saved flags word
	flags flagsPlace
	// axInR13 says that the program's rax is in r13.
	axInR13 bool
	// landing says that it is the frame of a return probe's landings.
	landing bool
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
	flagsInR13                   // that ax, in r13
	flagsGone                    // outside of the frame: displaced instructions, jumps
)

func unsupported(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, ErrUnsupported)...)
}
