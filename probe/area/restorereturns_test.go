package area

import (
	"bytes"
	"encoding/binary"
	"testing"

	"kprobe/probe/memory"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

// A process may be forked after new return instances are in the list, and before they are in the memory that it gets a
// copy of. The calls that have earlier ones are restored.
func TestRestoreReturnsForked(t *testing.T) {
	const real, instance = 0x1234560, 128
	withText(t, func(x *text) {
		a, err := New(t.Context(), x.p, ring.Params{MaxProbes: 16}, "")
		x.must(err)
		words := func(list ...uint64) (b []byte) {
			for _, w := range list {
				b = binary.LittleEndian.AppendUint64(b, w)
			}
			return b
		}
		pool := func() *memory.Arena {
			m, err := a.Code.MapNear(t.Context(), a.File.Base, memory.PageSize)
			x.must(err)
			x.must(a.Code.Writable(t.Context(), m.Start, memory.PageSize))
			a.Pools = append(a.Pools, m)
			return m
		}
		earlier, later := pool(), pool()
		x.must(x.p.WriteMemory(words(0, memory.PageSize), earlier.Start))
		// An instance of thread 1: a call whose slot is at x.at leads to the trampoline in front of its address.
		slot, trampoline := symbols.Addr(x.at), symbols.Addr(x.at+64)
		x.must(x.p.WriteMemory(words(uint64(trampoline)), slot))
		code := append([]byte{0x48, 0x8d, 0x64, 0x24, 0xf8, 0x68}, bytes.Repeat([]byte{0}, 4)...)
		code = append(append(code, 0xe9, 0, 0, 0, 0, 0xcc), words(uint64(earlier.Start + instance))[:6]...)
		x.must(x.p.WriteMemory(code, trampoline))
		x.must(x.p.WriteMemory(words(0, uint64(slot), 1<<32, real), earlier.Start+instance))
		a.File.Store64(a.File.Layout.Header.Off+memory.HeaderPools, uint64(later.Start)) // whose memory is blank
		if err := a.RestoreReturns(); err == nil {
			t.Error("blank instances of the process itself are no error")
		}
		x.must(a.Copied(x.p).RestoreReturns())
		if got := x.read(uint64(slot), 8); !bytes.Equal(got, words(real)) {
			t.Errorf("the slot has % x, not the return address", got)
		}
		x.must(a.close(t.Context()))
	})
}
