package area

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"kprobe/probe/detour"
	"kprobe/probe/memory"
)

// gateSize is the size of the gate's memory: a page, and what is known of the process's memory
// (detour.KnownSize).
const gateSize = memory.PageSize + detour.KnownSize

// LayGate maps the gate, closed. Forked children find it zeroed. If childrenRecord is true,
// they find it as their parent has it.
func (a *Area) LayGate(ctx context.Context, childrenRecord bool) error {
	p, err := a.Code.Add(ctx, a.File.Base, gateSize)
	if err != nil {
		return fmt.Errorf("a page that children don't have: %w", err)
	}
	p.Used = p.Size
	if err := a.Code.Writable(ctx, p.Start, gateSize); err != nil {
		return err
	}
	if !childrenRecord {
		if _, err := a.Proc.Syscall(ctx, nil, unix.SYS_MADVISE, uintptr(p.Start), gateSize, unix.MADV_WIPEONFORK); err != nil {
			return fmt.Errorf("have children record nothing (MADV_WIPEONFORK, Linux 4.14): %w", err)
		}
	}
	a.Gate = p.Start
	return a.File.Set64(a.File.Layout.Header.Off+memory.HeaderGate, uint64(a.Gate))
}
