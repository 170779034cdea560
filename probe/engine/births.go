package engine

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"kprobe/probe/fallbacks"
	"kprobe/probe/plan"
	"kprobe/probe/survey"
	"kprobe/symbols"
)

// births is what kprobe knows of the instructions in an address space that make tasks, for the time
// when no tracer sees births. leftbirths.go has the states.
type births struct {
	files   map[*symbols.File]birthsIn // the files that were examined
	places  []bornAt                   // the instructions that make tasks and have jumps beside them, or will have
	trusted bool                       // the jumps count tasks
	used    bool                       // no tracer watches any more: SetSequences changes nothing
	ruled   bool                       // the instructions that set seccomp rules have jumps before them

	unmapping []bornAt // the instructions that may end mappings, with jumps before them (leftknown.go)
	unseen    string   // why such jumps are not all there
	known     bool     // pages that can be read are noted
	own       bool     // a guest has laid such jumps (host.go)
}

// birthsIn is what a file says about births.
type birthsIn struct {
	list    []survey.Birth
	unknown []symbols.Vaddr // possible system call instructions of which no function is known
	blind   []symbols.Vaddr // such that may end mappings
}

func surveyBirths(f *symbols.File) (in birthsIn) {
	in.list, in.unknown, in.blind = survey.Births(f)
	return in
}

// bornAt is an instruction in a module that makes tasks.
type bornAt struct {
	survey.Birth
	module *symbols.Module
}

// of returns what a file says. It calls find for a file that was not examined before.
func (b *births) of(f *symbols.File, find func() (birthsIn, error)) (birthsIn, error) {
	if in, known := b.files[f]; known {
		return in, nil
	}
	in, err := find()
	if err != nil {
		return in, err
	}
	if b.files == nil {
		b.files = map[*symbols.File]birthsIn{}
	}
	b.files[f] = in
	return in, nil
}

// undo notes that no instruction has jumps beside it any more.
func (b *births) undo() {
	b.places, b.trusted, b.ruled = nil, false, false
	b.unmapping, b.unseen, b.known, b.own = nil, "", false, false
}

// at finds the place whose system call instruction is at pc or ends at pc; nil if there is none.
func (b *births) at(pc symbols.Addr) *bornAt {
	for i := range b.places {
		if p := &b.places[i]; pc == p.module.Addr(p.At) || pc == p.module.Addr(p.Behind) {
			return p
		}
	}
	return nil
}

// birthPlaces lists all instructions that can make tasks in the process's memory, and those that can
// set seccomp rules or end mappings, without those of Go code. If those that make tasks can't all be
// known or have jumps, why says so; unless all is true, the list then ends there. unseen says so for
// those that end mappings.
func (tg *Target) birthPlaces(all bool) (out []bornAt, why, unseen string) {
	if err := tg.refresh(); err != nil {
		return nil, err.Error(), err.Error()
	}
	unknown := func(x string) {
		why, unseen = cmp.Or(why, x), cmp.Or(unseen, x)
	}
	for _, m := range tg.Space.Mappings() {
		if m.Exec && m.Inode == 0 && !tg.harmless(&m) {
			unknown("the process has code without a file, which may make tasks unseen")
		}
		if m.Exec && m.Write {
			unknown("the process can write to its code, which may make tasks unseen")
		}
		if m.Exec && m.Inode != 0 && tg.Space.ModuleAt(m.Start) == nil {
			unknown(fmt.Sprintf("the code of %s can't be read", m.Path))
		}
	}
	for _, m := range tg.Space.Modules() {
		if why != "" && !all {
			return nil, why, unseen
		}
		if m.File == nil || m.Name == "[vdso]" {
			continue
		}
		if m.File.IsGo() {
			unknown("Go's runtime makes tasks by itself")
			continue
		}
		in, err := tg.births.of(m.File, func() (in birthsIn, err error) {
			return away(tg.Engine, func() (birthsIn, error) { return surveyBirths(m.File), nil })
		})
		if err != nil {
			unknown(err.Error())
			continue
		}
		if len(in.unknown) > 0 {
			why = cmp.Or(why, fmt.Sprintf("at %v of %s may be a system call that makes tasks, and no function is known there", in.unknown[0], m.Name))
		}
		if len(in.blind) > 0 {
			unseen = cmp.Or(unseen, fmt.Sprintf("at %v of %s may be a system call that unmaps memory, and no function is known there", in.blind[0], m.Name))
		}
		for _, b := range in.list {
			if b.Before == 0 && b.Task {
				why = cmp.Or(why, fmt.Sprintf("the system call at %s may make tasks, and no jump can be placed before it", symbols.OffsetName(b.Func.Symbol.Name, uint64(b.At-b.Func.Start))))
			}
			out = append(out, bornAt{b, m})
		}
	}
	return out, why, cmp.Or(unseen, tg.knows(out))
}

// harmless reports whether code without a file makes no task and ends no mapping unseen: the kernel's, and
// kprobe's own. The kernel joins neighbours, so all of a mapping must be one of these.
func (tg *Target) harmless(m *symbols.Mapping) bool {
	return strings.HasPrefix(m.Path, "[v") || runsUprobes(m) || covered(m, tg.mappedCode())
}

// mappedCode lists the code that was mapped for this kprobe's probes, for those that were left before, and for a parent's of
// which this process has copies.
func (tg *Target) mappedCode() []plan.Range {
	tg.left.look(tg.Proc.PID())
	list := append(slices.Clone(tg.left.code), tg.inherited...)
	if tg.Area == nil {
		return list
	}
	for _, p := range tg.Area.Code.All() {
		list = append(list, plan.Range{Lo: uint64(p.Start), Hi: uint64(p.End())})
	}
	if p := tg.Area.Scratch; p != nil {
		list = append(list, plan.Range{Lo: uint64(p.Start), Hi: uint64(p.End())})
	}
	if code := uint64(tg.Area.Fallbacks.Code()); code != 0 {
		list = append(list, plan.Range{Lo: code, Hi: code + fallbacks.Size})
	}
	return list
}

// covered reports whether ranges cover a mapping.
func covered(m *symbols.Mapping, by []plan.Range) bool {
	slices.SortFunc(by, func(a, b plan.Range) int { return cmp.Compare(a.Lo, b.Lo) })
	at := uint64(m.Start)
	for _, r := range by {
		if r.Lo <= at {
			at = max(at, r.Hi)
		}
	}
	return at >= uint64(m.End)
}

// runsUprobes reports whether a mapping is where the kernel executes instructions that its own probes (uprobes)
// displace. It stays when they are gone. The program can neither write to it nor give its name to other memory.
func runsUprobes(m *symbols.Mapping) bool {
	return (m.Path == "[uprobes]" || m.Path == "[uprobes-trampoline]") && m.Inode == 0 && !m.Write
}

// inUprobes reports whether pc is there: a displaced instruction may be a system call.
func (tg *Target) inUprobes(pc symbols.Addr) bool {
	return slices.ContainsFunc(tg.Space.Mappings(), func(m symbols.Mapping) bool { return m.Contains(pc) && runsUprobes(&m) })
}

// birthFlags are the clone flags of the task that a thread at a place makes. ok is false if they
// can't be found out.
func (tg *Target) birthFlags(b *bornAt, regs *unix.PtraceRegs) (flags uint64, ok bool) {
	switch b.Number {
	case survey.SysVfork:
		return unix.CLONE_VM | unix.CLONE_VFORK, true
	case survey.SysClone:
		return regs.Rdi, true
	case survey.SysClone3:
		var word [8]byte
		_, err := tg.Proc.ReadMemory(word[:], symbols.Addr(regs.Rdi))
		return binary.LittleEndian.Uint64(word[:]), err == nil && b.counted()
	}
	// Other system calls don't make tasks. Only behind the instruction it is certain that the call
	// is over: the kernel doesn't make it again.
	return 0, symbols.Addr(regs.Rip) == b.module.Addr(b.Behind) && int64(regs.Rax) >= -maxErrno
}

// maxErrno is the highest error number that a program sees. Higher numbers (ERESTARTSYS and the
// like) are the kernel's, for calls that it makes again.
const maxErrno = 511

// counted reports whether a jump behind the instruction counts its tasks off.
func (b *bornAt) counted() bool {
	return b.Number == survey.SysVfork || b.Number == survey.SysClone || b.Number == survey.SysClone3 && b.args()
}

// args reports whether the arguments of clone3 are the C library's own.
func (b *bornAt) args() bool { return strings.HasPrefix(b.module.Name, "libc.") }
