package memory

import (
	"bytes"
	"cmp"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// Change is bytes of the text to be replaced.
type Change struct {
	At   uint64
	Old  []byte // what must be there, or nothing is changed; nil: whatever is
	New  []byte
	Done bool // it is made, or was not to be
	// Wrote says that it is made: the bytes of Old were there.
	Wrote bool
}

// End is the address behind the last byte.
func (c *Change) End() uint64 { return c.At + uint64(len(c.New)) }

const (
	// rewriteGap is how many bytes that stay may lie between two changes that
	// are written at once. It is less than a page, so that no page is written
	// in which nothing changes.
	rewriteGap = 1024
	// rewriteMost bounds what is written at once.
	rewriteMost = 64 << 10
)

// Rewrite makes changes that don't overlap, neighbours in one write: a write of
// its own for each of ten thousand would stop the target for many milliseconds.
// The threads must be stopped, for the bytes between changes are written too,
// as they are. The changes come back in order of address.
func Rewrite(p *tracee.Process, list []Change) error {
	slices.SortFunc(list, func(a, b Change) int { return cmp.Compare(a.At, b.At) })
	var errs []error
	r := rewriting{p: p}
	for len(list) > 0 {
		n := 1
		for n < len(list) && list[n].At < list[n-1].End()+rewriteGap && list[n].End()-list[0].At <= rewriteMost {
			n++
		}
		errs = append(errs, r.span(list[:n]))
		list = list[n:]
	}
	return errors.Join(errs...)
}

// rewriting is a Rewrite that is under way.
type rewriting struct {
	p   *tracee.Process
	buf []byte // of the span that is written
}

// span makes changes that are neighbours.
func (r *rewriting) span(list []Change) error {
	start := list[0].At
	size := int(list[len(list)-1].End() - start)
	r.buf = slices.Grow(r.buf[:0], size)
	span := r.buf[:size]
	if _, err := r.p.ReadMemory(span, symbols.Addr(start)); err != nil {
		switch {
		case len(list) > 1:
			return errors.Join(r.span(list[:1]), r.span(list[1:]))
		case list[0].Old != nil && errors.Is(err, unix.EFAULT) && !errors.Is(err, symbols.ErrLatePage):
			list[0].Done = true // its library was unloaded
			return nil
		}
		return err
	}
	changed := false
	for i := range list {
		c := &list[i]
		here := span[c.At-start : c.End()-start]
		if c.Old == nil || bytes.Equal(here, c.Old) {
			copy(here, c.New)
			c.Wrote, changed = true, true
		}
	}
	if changed {
		if err := r.p.WriteMemory(span, symbols.Addr(start)); err != nil {
			for i := range list {
				list[i].Wrote = false
			}
			return err
		}
	}
	for i := range list {
		list[i].Done = true
	}
	return nil
}
