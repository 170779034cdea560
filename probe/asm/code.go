// Package asm emits x86-64 machine code: one method for each instruction form that kprobe
// writes into a process, and labels with rel8 and rel32 fixups. It has nothing to do with an
// operating system.
//
// The encodings are those of the Intel Software Developer's Manual, volume 2. If an instruction
// can't be encoded as asked (a short jump out of reach, an operand that has no such form), the
// Code keeps an error, which Bytes returns. The emitted code is then not usable.
package asm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrRange says that a branch or a RIP-relative operand doesn't reach.
var ErrRange = errors.New("target out of reach")

// ErrUnbound says that a label is used and was never bound.
var ErrUnbound = errors.New("label is not bound")

// ErrForm says that an instruction has no such form.
var ErrForm = errors.New("no such instruction form")

// Label is a place in a Code. The zero Label is no label.
type Label int

// Code is machine code that grows. Make it with New. Not for concurrent use.
type Code struct {
	base   uint64
	buf    []byte
	labels []int // offset of label i+1, -1 while not bound
	fixups []fixup
	err    error
	// What Again goes by: the branches to labels that had no place yet, in order,
	// and what was aligned.
	forward []branch
	aligned []gap
	near    Near // of branches in that order: rel8 will do
}

// branch is a near branch forward, and gap what Align filled, to n bytes.
type branch struct {
	pos, size int // of the instruction
	label     Label
}

type gap struct{ pos, n int }

// fixup is a displacement of size bytes at pos, relative to end.
type fixup struct {
	pos, size, end int
	label          Label
}

// New returns an empty Code whose first byte will lie at the address base.
func New(base uint64) *Code { return &Code{base: base} }

// Again returns an empty Code for the same instructions at the same base, in which
// branches to labels that come later are two bytes long where c's label turned
// out to be near enough. All labels that c used are bound. Where other
// instructions follow than c had, such a branch may not reach: Bytes returns
// ErrRange then.
func (c *Code) Again() *Code { return Like(c.base, c.Near()) }

// Like returns an empty Code for the same instructions, at another base, as one
// of which near tells (Near).
func Like(base uint64, near Near) *Code {
	c := new(Code)
	c.Reset(base, near)
	return c
}

// Reset empties c as Like makes a Code. What Bytes has returned is overwritten by what c emits next.
func (c *Code) Reset(base uint64, near Near) {
	*c = Code{
		base: base, near: near,
		buf: c.buf[:0], labels: c.labels[:0], fixups: c.fixups[:0], forward: c.forward[:0], aligned: c.aligned[:0],
	}
}

// Near says of the branches to labels that come later, in order, which of them are
// two bytes long in code that is emitted again.
type Near []bool

// Shorter is by how many bytes code is shorter at least when it is emitted again.
func (c *Code) Shorter() int {
	n := 0
	for i, near := range c.Near() {
		if near {
			n += c.forward[i].size - 2
		}
	}
	for _, g := range c.aligned {
		n -= g.n - 1 // another gap may stand there
	}
	return max(n, 0)
}

// Near is for Like, where all labels that were used are bound.
func (c *Code) Near() Near {
	near := make([]bool, len(c.forward))
	for more := true; more; {
		more = false
		for i, b := range c.forward {
			to, ok := c.Offset(b.label)
			if near[i] || !ok {
				continue
			}
			far := to - b.pos - b.size
			for k := i + 1; k < len(c.forward) && c.forward[k].pos < to; k++ {
				if near[k] {
					far -= c.forward[k].size - 2
				}
			}
			for _, g := range c.aligned {
				if g.pos > b.pos && g.pos <= to {
					far += g.n // another gap may stand there
				}
			}
			if far <= 127 {
				near[i], more = true, true
			}
		}
	}
	return near
}

// forwards emits a branch to a label of which the place isn't known yet: the
// short opcode and rel8 if that will do, else near and rel32.
func (c *Code) forwards(l Label, short byte, near ...byte) {
	i := len(c.forward)
	b := branch{pos: len(c.buf), size: len(near) + 4, label: l}
	if i < len(c.near) && c.near[i] {
		b.size = 2
		c.Raw(short)
		c.ref(l, 1, 0)
	} else {
		c.Raw(near...)
		c.ref(l, 4, 0)
	}
	c.forward = append(c.forward, b)
}

// Base is the address of the first byte.
func (c *Code) Base() uint64 { return c.base }

// Len is the number of bytes emitted.
func (c *Code) Len() int { return len(c.buf) }

// Here is the address of the next byte.
func (c *Code) Here() uint64 { return c.base + uint64(len(c.buf)) }

// NewLabel makes a label that is bound later.
func (c *Code) NewLabel() Label {
	c.labels = append(c.labels, -1)
	return Label(len(c.labels))
}

// Bind puts the label at the next byte. A label is bound once.
func (c *Code) Bind(l Label) {
	if l < 1 || int(l) > len(c.labels) || c.labels[l-1] >= 0 {
		c.fail(fmt.Errorf("bind label %d: %w", l, ErrUnbound))
		return
	}
	c.labels[l-1] = len(c.buf)
}

// Mark makes a label and binds it here.
func (c *Code) Mark() Label {
	l := c.NewLabel()
	c.Bind(l)
	return l
}

// Offset is where a bound label lies from the first byte on; ok is false for
// one that isn't bound.
func (c *Code) Offset(l Label) (off int, ok bool) {
	if l < 1 || int(l) > len(c.labels) || c.labels[l-1] < 0 {
		return 0, false
	}
	return c.labels[l-1], true
}

// Bytes resolves all labels and returns the code, or the first error: ErrRange,
// ErrUnbound or ErrForm. The code may go on growing, but no label that was used
// may still be unbound.
func (c *Code) Bytes() ([]byte, error) {
	for _, f := range c.fixups {
		to, ok := c.Offset(f.label)
		if !ok {
			c.fail(fmt.Errorf("label %d used at %#x: %w", f.label, f.pos, ErrUnbound))
			continue
		}
		c.patch(f, to-f.end)
	}
	if c.err != nil {
		return nil, c.err
	}
	c.fixups = c.fixups[:0]
	return c.buf, nil
}

func (c *Code) patch(f fixup, d int) {
	if f.size == 1 {
		if d != int(int8(d)) {
			c.fail(fmt.Errorf("short branch at %#x over %d bytes: %w", f.pos, d, ErrRange))
			return
		}
		c.buf[f.pos] = byte(d)
		return
	}
	if d != int(int32(d)) {
		c.fail(fmt.Errorf("displacement at %#x: %w", f.pos, ErrRange))
		return
	}
	binary.LittleEndian.PutUint32(c.buf[f.pos:], uint32(d))
}

func (c *Code) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// Raw appends bytes as they are.
func (c *Code) Raw(b ...byte) { c.buf = append(c.buf, b...) }

// Data64 appends a little-endian quadword.
func (c *Code) Data64(v uint64) { c.buf = binary.LittleEndian.AppendUint64(c.buf, v) }

// Data32 appends a little-endian doubleword.
func (c *Code) Data32(v uint32) { c.buf = binary.LittleEndian.AppendUint32(c.buf, v) }

// Align appends fill bytes until the address is a multiple of n, a power of two.
func (c *Code) Align(n int, fill byte) {
	c.aligned = append(c.aligned, gap{len(c.buf), n})
	for c.Here()&uint64(n-1) != 0 {
		c.buf = append(c.buf, fill)
	}
}

// rel32To appends the displacement of an instruction's last field from its end
// to an address.
func (c *Code) rel32To(addr uint64, after int) {
	d := int64(addr - (c.Here() + 4 + uint64(after)))
	if d < math.MinInt32 || d > math.MaxInt32 {
		c.fail(fmt.Errorf("from %#x to %#x: %w", c.Here(), addr, ErrRange))
	}
	c.Data32(uint32(d))
}
