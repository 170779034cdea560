package memory

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// How memory comes and goes in a target
//
// Whatever kprobe maps there is an arena: private, anonymous, at an address that
// kprobe chooses. It goes through these states, each of which the memory file
// tells, so that whoever comes after a kprobe that was killed in any of them
// knows what is whose. M is the arena's entry in the file's table of mappings.
//
//	coming   M has the address, and 0 as used. The memory isn't mapped, or it
//	         is, readable and executable, all zeros; a program that has mapped
//	         something there first has no such memory.
//	there    M says used. What is to be written to is made writable now.
//	marked   as before, but the first bytes are LeavingMark. Nobody uses it.
//	going    M has 0 as used. The memory has the mark, or isn't mapped, or is
//	         the program's by now, without the mark.
//	gone     M is free.

// LeavingMark is what an arena begins with before it is unmapped.
func LeavingMark(at symbols.Addr) []byte {
	return binary.LittleEndian.AppendUint64([]byte("kprobe: unmapped"), uint64(at))
}

// MapAt maps an arena of size bytes at an address that seems free. The error is
// unix.EEXIST if it isn't; then nothing has changed.
func (c *Arenas) MapAt(ctx context.Context, at symbols.Addr, size uint64) (*Arena, error) {
	p := &Arena{Start: at, Size: size}
	if err := c.journal.Coming(p); err != nil {
		return nil, err
	}
	got, err := c.proc.Syscall(ctx, nil, unix.SYS_MMAP, uintptr(at), uintptr(size), unix.PROT_READ|unix.PROT_EXEC,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED_NOREPLACE, ^uintptr(0), 0)
	if err == nil && symbols.Addr(got) != at {
		// A kernel before 4.17 takes the address as a hint.
		if err := Munmap(ctx, c.proc, symbols.Addr(got), size); err != nil {
			return nil, err
		}
		err = unix.EEXIST
	}
	if err != nil {
		return nil, errors.Join(limited(c.proc.PID(), err, limitMapped), c.journal.gone(p))
	}
	return p, c.journal.There(p)
}

// Writable lets the target write to a part of an arena, and no more execute it.
func (c *Arenas) Writable(ctx context.Context, at symbols.Addr, size uint64) error {
	_, err := c.proc.Syscall(ctx, nil, unix.SYS_MPROTECT, uintptr(at), uintptr(size), unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return fmt.Errorf("make memory of the target writable: %w", limited(c.proc.PID(), err, limitWritable))
	}
	return nil
}

// Unmap gives an arena back to the target. No thread may be in it, or use it.
func (c *Arenas) Unmap(ctx context.Context, p *Arena) error {
	if err := c.proc.WriteMemory(LeavingMark(p.Start), p.Start); err != nil {
		return fmt.Errorf("mark memory that is to be unmapped: %w", err)
	}
	if err := c.journal.Going(p); err != nil {
		return err
	}
	if err := Munmap(ctx, c.proc, p.Start, p.Size); err != nil {
		return errors.Join(err, c.journal.There(p))
	}
	return c.journal.gone(p)
}

// Munmap unmaps what no arena is.
func Munmap(ctx context.Context, p *tracee.Process, at symbols.Addr, size uint64) error {
	if _, err := p.Syscall(ctx, nil, unix.SYS_MUNMAP, uintptr(at), uintptr(size)); err != nil {
		return fmt.Errorf("unmap %v: %w", at, err)
	}
	return nil
}

// IsArena reports whether what lies where a mapping of the journal says is
// kprobe's.
func IsArena(m ring.Map, maps []symbols.Mapping, mem symbols.Memory) bool {
	start, end := symbols.Addr(m.Addr), symbols.Addr(m.Addr+m.Size)
	private, code := AnonymousIn(maps, start, m.Size)
	switch {
	case !private:
		return false
	case m.Used != 0:
		return true
	}
	mark := LeavingMark(start)
	b := make([]byte, PageSize)
	if _, err := mem.ReadMemory(b, start); err == nil && bytes.HasPrefix(b, mark) {
		return true
	}
	for at := start; code && at < end; at += PageSize {
		if _, err := mem.ReadMemory(b, at); err != nil || !bytes.Equal(b, make([]byte, PageSize)) {
			return false
		}
	}
	return code
}

// AnonymousIn reports whether a range is memory that no file backs, and whether
// all of it is readable, executable and not writable. A hostile memory file can't
// have kprobe unmap anything else.
func AnonymousIn(maps []symbols.Mapping, start symbols.Addr, size uint64) (private, code bool) {
	end := start + symbols.Addr(size)
	if end <= start {
		return false, false
	}
	code = true
	for _, m := range maps {
		if m.End <= start || m.Start > start || m.Path != "" {
			continue
		}
		code = code && m.Exec && !m.Write
		if start = m.End; start >= end {
			return true, code
		}
	}
	return false, false
}
