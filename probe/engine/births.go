package engine

import (
	"encoding/binary"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"kprobe/probe/survey"
	"kprobe/symbols"
)

// births is what is known of the places of an address space at which tasks are made, while
// nobody is to see them made. leftbirths.go has the states that they go through.
type births struct {
	files   map[*symbols.File]birthsIn // what files tell, of those that were looked into
	places  []bornAt                   // those that have jumps beside them, or are to have
	trusted bool                       // tasks are counted
	used    bool                       // nobody watches any more: sequences stay as they are
}

// birthsIn is what a file tells of births.
type birthsIn struct {
	list    []survey.Birth
	unknown []symbols.Vaddr // what may be such a place, and nothing is known of it
}

func surveyBirths(f *symbols.File) (in birthsIn) {
	in.list, in.unknown = survey.Births(f)
	return in
}

// bornAt is a place of a module.
type bornAt struct {
	survey.Birth
	module *symbols.Module
}

// of is what a file tells; find finds it out the first time.
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

// undo notes that no place is to have jumps any more.
func (b *births) undo() { b.places, b.trusted = nil, false }

// at is the place at whose system call, or right behind it, an address is; nil: at none.
func (b *births) at(pc symbols.Addr) *bornAt {
	for i := range b.places {
		if p := &b.places[i]; pc == p.module.Addr(p.At) || pc == p.module.Addr(p.Behind) {
			return p
		}
	}
	return nil
}

// birthPlaces finds what can make tasks in the process's memory, or says why that can't be
// known.
func (tg *Target) birthPlaces() (out []bornAt, why string) {
	if err := tg.refresh(); err != nil {
		return nil, err.Error()
	}
	for _, m := range tg.Space.Mappings() {
		if m.Exec && m.Inode == 0 && !strings.HasPrefix(m.Path, "[v") && !tg.isOwn(m.Start) && !tg.inherited[m.Start] {
			return nil, "the process has code of no file, which may make tasks that nobody sees"
		}
		if m.Exec && m.Write {
			return nil, "the process can write to its code, which may make tasks that nobody sees"
		}
		if m.Exec && m.Inode != 0 && !tg.isOwn(m.Start) && tg.Space.ModuleAt(m.Start) == nil {
			return nil, fmt.Sprintf("the code of %s can't be read", m.Path)
		}
	}
	for _, m := range tg.Space.Modules() {
		if m.File == nil || m.Name == "[vdso]" {
			continue
		}
		if m.File.IsGo() {
			return nil, "Go's runtime makes tasks by itself"
		}
		in, err := tg.births.of(m.File, func() (in birthsIn, err error) {
			return away(tg.Engine, func() (birthsIn, error) { return surveyBirths(m.File), nil })
		})
		if err != nil {
			return nil, err.Error()
		}
		if len(in.unknown) > 0 {
			return nil, fmt.Sprintf("at %v of %s may be a system call that makes tasks, and no function is known there", in.unknown[0], m.Name)
		}
		for _, b := range in.list {
			if b.Before == 0 {
				return nil, fmt.Sprintf("the system call at %s may make tasks, and nothing can be laid before it", symbols.OffsetName(b.Func.Symbol.Name, uint64(b.At-b.Func.Start)))
			}
			out = append(out, bornAt{b, m})
		}
	}
	return out, ""
}

// birthFlags are the flags of the task that a thread at a place makes.
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
	// Behind it anything else has been done, too.
	return 0, symbols.Addr(regs.Rip) == b.module.Addr(b.Behind) && int64(regs.Rax) >= -maxErrno
}

// maxErrno is the highest error that a program is given; the kernel's own, of calls that
// are to be made again, are higher.
const maxErrno = 511

// counted reports whether tasks of the place are counted off behind it.
func (b *bornAt) counted() bool {
	return b.Number == survey.SysVfork || b.Number == survey.SysClone || b.Number == survey.SysClone3 && b.args()
}

// args reports whether the arguments of clone3 are the C library's own.
func (b *bornAt) args() bool { return strings.HasPrefix(b.module.Name, "libc.") }
