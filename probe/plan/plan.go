// Package plan decides how each probed instruction is patched: by which tactic, with which
// bytes, and where its detour must lie, or why it can't be a jump. It turns bytes into bytes
// and touches no process.
//
// # The jump
//
// A jump takes 5 bytes. If the probed instruction is shorter, there are three ways: the jump
// covers the next instructions too (a window); or its displacement is made of bytes that are
// there already (a pun); or it is short and leads to a long one in padding nearby. They are
// tried in the order of Tactic.
//
// # Guards
//
// A window hides instruction boundaries under the jump's displacement. No analysis can prove
// that nothing will arrive there: a signal frame, a parked goroutine or an unknown jump table
// may hold such an address. So the detour's address is chosen such that every byte of the
// displacement at an old boundary is an opcode that traps. A thread that arrives there is sent
// to the instruction's copy. Analysis is only used to avoid windows that would be entered
// often.
package plan

import "fmt"

// Tactic is how a site is patched. Its numbers are kept in the memory file.
type Tactic uint16

// The tactics, in the order in which they are tried from Nop on.
const (
	// Refused: not even a breakpoint is possible, because the instruction can't run
	// elsewhere.
	Refused Tactic = iota
	// Breakpoint is int3.
	Breakpoint
	// Nop is a jump over a no-op of 5 bytes or more.
	Nop
	// Single is a jump over one instruction of 5 bytes or more.
	Single
	// Window is a jump over several instructions, guarded.
	Window
	// Pun is a jump of whose displacement only the part inside the instruction is changed.
	// The rest is what follows, which may be another jump.
	Pun
	// TailPad is a jump over the last instructions of a stretch of code and the padding
	// after them, guarded.
	TailPad
	// ShortJump is a two-byte jump to a jump nearby, in padding or in an island from which
	// instructions were moved away.
	ShortJump
	// DebugRegister is not a patch: the processor watches memory.
	DebugRegister
	// Bypass is a guard at the instruction, to which nothing leads any more: the branches
	// that led to it are in islands, whose copies lead to the detour.
	Bypass
)

// String returns the tactic in words.
func (t Tactic) String() string {
	names := [...]string{
		"refused", "breakpoint", "no-op pad", "single instruction", "guarded window", "punned jump", "tail and padding", "short jump",
		"debug register", "bypass",
	}
	if int(t) < len(names) {
		return names[t]
	}
	return fmt.Sprintf("tactic %d", uint16(t))
}

// Jump reports whether hits take no trap.
func (t Tactic) Jump() bool { return t >= Nop && t <= ShortJump || t == Bypass }

// JumpLen is the length of a jump with a 32-bit displacement (E9).
const JumpLen = 5

// Site asks for a probe at an address.
type Site struct {
	Addr uint64
	// Room is how many bytes the detour takes at most, including copies of displaced
	// instructions and the way back; 0 is DefaultRoom.
	Room int
	// Trap demands a breakpoint, because the probe has a synchronous handler.
	Trap bool
}

// DefaultRoom holds a stub: a jump to a detour that lies elsewhere.
const DefaultRoom = 16

// Write is a range of bytes to be changed.
type Write struct {
	At    uint64
	Bytes []byte
}

// Guard is an old instruction boundary under a jump. A thread that traps with its instruction
// pointer there (after it for int3) continues at the copy of that instruction.
type Guard struct {
	At   uint64
	Byte byte // 0xcc traps with SIGTRAP, every other with SIGILL
}

// Patch is the change for one or several sites. It refers to the function's code. Pack makes what is kept of
// it.
type Patch struct {
	Tactic Tactic
	// At is the first byte of the code that is changed. It is the lowest site's address, or
	// 4 more if that is an endbr64, which stays, or less if instructions before the site
	// had to be included.
	At uint64
	// Sites are the addresses that the patch serves, lowest first. Each is the start of a
	// displaced instruction, or that endbr64. A detour runs the copies in order, and takes
	// a site's hits before its instruction's copy.
	Sites []uint64
	// Writes are the changes. All but the last are in padding, which no thread executes,
	// and are made first. The last is at At.
	Writes []Write
	// Displaced are the original bytes at At, whole instructions, that run in the detour.
	Displaced []byte
	// Detour is the address that the jump leads to. Room bytes are free there. 0 for
	// breakpoints.
	Detour uint64
	Room   int
	// CopyLo and CopyHi bound the addresses from which every RIP-relative operand and
	// branch target of Displaced can be reached. If there is no such address, CopyLo >
	// CopyHi.
	CopyLo, CopyHi uint64
	Guards         []Guard
	// Island is set if other instructions give way to the patch. For a ShortJump it is a
	// Window that serves no site: its one Write is a jump to a plain copy at Island.Detour,
	// followed by the long jump to Detour. For other tactics its first bytes are the last
	// of the patch's own jump; it serves the sites that it covers, if there are any, and
	// may have an island of its own. For a Bypass it has the branches that led to the site,
	// and may serve other sites. It is armed before the patch and disarmed after it.
	Island *Patch
	// Lock is the end of the bytes, from At on, that must stay as they are while the patch
	// is in place, written or not.
	Lock uint64
	// Why is the reason why there is no better tactic; "" for the best.
	Why string
}

// End is the address after the displaced instructions, where a detour continues if the last of
// them falls through.
func (p *Patch) End() uint64 { return p.At + uint64(len(p.Displaced)) }
