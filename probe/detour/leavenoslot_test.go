package detour

import (
	"encoding/binary"
	"fmt"
	"testing"

	"kprobe/symbols"
)

// lateMemory is memory that never comes.
type lateMemory struct{}

// ReadMemory implements symbols.Memory.
func (lateMemory) ReadMemory(_ []byte, at symbols.Addr) (int, error) {
	return 0, fmt.Errorf("%v: %w", at, symbols.ErrLatePage)
}

// TestLeftWithoutSlot finds an instance that a thread has taken and has written no slot into. On a machine
// that is so busy that reads are given up, nothing is read for it: its session could not be left.
func TestLeftWithoutSlot(t *testing.T) {
	mem := make([]byte, stripeSize)
	binary.LittleEndian.PutUint32(mem[instTID:], 7)
	if calls, late := Left(mem, 0x10000, lateMemory{}); len(calls) != 0 || late != nil {
		t.Errorf("calls %v, %v", calls, late)
	}
	binary.LittleEndian.PutUint64(mem[instSlot:], 0x7000)
	if calls, late := Left(mem, 0x10000, lateMemory{}); len(calls) != 0 || late == nil {
		t.Errorf("of a slot that can't be read: calls %v, %v", calls, late)
	}
}
