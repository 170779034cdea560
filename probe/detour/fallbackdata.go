package detour

import "encoding/binary"

// Putter is memory of the target, written from the tracer's side: the memory file mapped here,
// or the process's memory. Put writes b at off bytes from the region's start. Writes must
// become visible in the order in which they were made, and a write of eight bytes at an offset
// divisible by eight in one piece.
type Putter interface {
	Put(off int, b []byte)
}

// The fallback handler's data, little-endian:
//
//	  0  u64 address of the site table (Table), 0 for none
//	  8  u64 signals that the fallback handler answered (hits that nobody recorded)
//	 16  4 × {u64 start, u64 length} ranges of return trampolines; length 0 is none
//	 80  u64 address of a u64 that counts the threads that are being stepped, 0 for none
//	 88  u64 address of a u64 that isn't 0 while memory is watched, 0 for none
//	 96  u64 the signals whose action was set, bit by number
//	128  16 × action, indexed by the signal's number: what the program had
//
// An action is the kernel's struct sigaction: u64 handler, flags, restorer, mask.
const (
	// FallbackDataSize is the size of the fallback handler's data in bytes.
	FallbackDataSize = fallbackActions + fallbackSignals*actionSize

	fallbackTable    = 0
	fallbackTaken    = 8
	fallbackLandings = 16
	fallbackRanges   = 4
	fallbackSteps    = 80
	fallbackWatched  = 88
	fallbackCaught   = 96
	fallbackActions  = 128
	fallbackSignals  = 16

	actionHandler  = 0
	actionFlags    = 8
	actionRestorer = 16
	actionMask     = 24
	actionShift    = 5
	actionSize     = 1 << actionShift
)

// FallbackSignals are the signals that a fallback handler may answer: SIGILL, SIGTRAP, SIGBUS,
// SIGFPE and SIGSEGV. It depends on what is probed which of them are needed.
func FallbackSignals() []int { return []int{4, 5, 7, 8, 11} }

// FallbackLandings is how many ranges of return trampolines a fallback handler knows.
const FallbackLandings = fallbackRanges

// FallbackData writes the parts of a fallback handler's data, which starts at offset Off of W.
// Memory of zeros is a fallback handler that knows nothing.
type FallbackData struct {
	W   Putter
	Off int
}

// SetTable makes the fallback handler use the site table at that address of the target.
func (d FallbackData) SetTable(addr uint64) { d.put64(fallbackTable, addr) }

// SetTrampolines makes [start, start+length) range number i of return trampolines, each of
// which is an int3 followed by a jump. A range in use may only be changed to a longer one.
func (d FallbackData) SetTrampolines(i int, start, length uint64) {
	if i < 0 || i >= fallbackRanges {
		return
	}
	d.put64(fallbackLandings+16*i, start)
	d.put64(fallbackLandings+16*i+8, length)
}

// SetAction says what a signal's action was: the struct sigaction that rt_sigaction returned.
// It must be called before the fallback handler is installed.
func (d FallbackData) SetAction(signal int, old Action) {
	if signal <= 0 || signal >= fallbackSignals {
		return
	}
	d.W.Put(d.Off+fallbackActions+actionSize*signal, old.Bytes())
}

// SetSteps says where in the target the tracer counts the threads that it lets execute a single
// instruction; 0 is nowhere. The fallback handler subtracts one for each trap of such a step
// that it answers.
func (d FallbackData) SetSteps(addr uint64) { d.put64(fallbackSteps, addr) }

// SetWatched gives the address in the target of a number that isn't 0 while memory is watched;
// 0 is none.
func (d FallbackData) SetWatched(addr uint64) { d.put64(fallbackWatched, addr) }

// SetCaught notes the signals whose actions were set, bit by number, for whoever removes the
// fallback handler. The fallback handler doesn't use it.
func (d FallbackData) SetCaught(set uint64) { d.put64(fallbackCaught, set) }

// FallbackCaught reads what SetCaught wrote.
func FallbackCaught(data []byte) uint64 { return binary.LittleEndian.Uint64(data[fallbackCaught:]) }

// FallbackConnected reports whether the data lead a fallback handler to anything but the
// program's actions.
func FallbackConnected(data []byte) bool {
	for _, off := range []int{fallbackTable, fallbackSteps, fallbackWatched} {
		if binary.LittleEndian.Uint64(data[off:]) != 0 {
			return true
		}
	}
	for i := range fallbackRanges {
		if binary.LittleEndian.Uint64(data[fallbackLandings+16*i+8:]) != 0 {
			return true
		}
	}
	return false
}

func (d FallbackData) put64(off int, v uint64) {
	d.W.Put(d.Off+off, binary.LittleEndian.AppendUint64(nil, v))
}

// FallbackAction reads from the data what FallbackData.SetAction wrote for a signal, so that a
// fallback handler can be removed. SA_RESETHAND may have changed it since.
func FallbackAction(data []byte, signal int) Action {
	return ParseAction(data[fallbackActions+actionSize*(signal&(fallbackSignals-1)):])
}

// Action is the kernel's struct sigaction of x86-64.
type Action struct {
	Handler, Flags, Restorer, Mask uint64
}

// ParseAction reads an Action from the 32 bytes of one.
func ParseAction(b []byte) Action {
	le := binary.LittleEndian
	return Action{
		Handler:  le.Uint64(b[actionHandler:]),
		Flags:    le.Uint64(b[actionFlags:]),
		Restorer: le.Uint64(b[actionRestorer:]),
		Mask:     le.Uint64(b[actionMask:]),
	}
}

// Bytes is the Action as rt_sigaction takes it.
func (a Action) Bytes() []byte {
	b := make([]byte, 0, actionSize)
	for _, v := range []uint64{a.Handler, a.Flags, a.Restorer, a.Mask} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

// Action returns the action to install for a signal whose action was old. System calls that
// such a signal interrupts, if kill sent it, restart as they did before.
func (l FallbackLabels) Action(old Action) Action {
	flags := uint64(saSiginfo | saOnstack | saRestorer | saNodefer)
	if old.Handler <= 1 || old.Flags&saRestart != 0 {
		flags |= saRestart
	}
	return Action{Handler: l.Handler, Flags: flags, Restorer: l.Restorer}
}
