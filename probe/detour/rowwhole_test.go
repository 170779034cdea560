package detour

import (
	"encoding/binary"
	"fmt"
	"testing"

	"kprobe/fetch"
	"kprobe/probe/asm"
)

// A row whose call was left, and that is noted anew, says at each instruction what it said before, what it says then,
// or that it is just being taken: a handler of a signal may leave the thread there, and a tracer may look.
func TestRowWhole(t *testing.T) {
	const was, now = codeAt + 0x4321, codeAt + 0x1234
	for _, jump := range []bool{false, true} {
		for _, back := range []uint64{was, now} {
			for _, marks := range []uint32{0, passedOn} {
				t.Run(fmt.Sprintf("at a jump: %v, from %#x, marks %#x", jump, back, marks), func(t *testing.T) {
					m := newMachine(t, 1, 64<<10, shared{logAt, 0, 4 << 20, protRW})
					k, p := m.tallied(false)
					d, err := m.place(func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
						x := Probe{ID: 7, Program: must(t, "r f"), CountOnly: true, Anywhere: true}
						if jump {
							return BuildJump(base, &p, []Probe{x}, k, 0, true, tail)
						}
						return BuildEnter(base, &p, nil, x, k, tail)
					})
					if err != nil {
						t.Fatal(err)
					}
					var regs fetch.Regs
					regs.GPR[fetch.SP], regs.Flags = stackAt+stackSize-4096, 0x302 // step
					slot := regs.GPR[fetch.SP]
					m.put64(slot, now)
					row := k.Addr + uint64(k.offset(k.firstRow(slot)))
					m.put64(row+callSlot, slot)
					m.put64(row+callReturn, back)
					m.put64(row+callTID, uint64(77|marks))
					m.put64(row+callEntry, anywhere|8)
					m.put64(row+1<<k.Shift-ownerBefore, anywhere|9|1<<32)
					m.setCase(0, d.Base, &regs, &fetch.Vector{})
					type state struct {
						back, tid uint64
						owners    [4]uint32
					}
					var seen []state
					for _, st := range m.stepOver(&Detour{Base: p.Tally.Base, Code: make([]byte, d.Base+uint64(len(d.Code))-p.Tally.Base)}, row) {
						mem := make([]byte, k.Size())
						for i, w := range st.data {
							binary.LittleEndian.PutUint64(mem[row-k.Addr+uint64(8*i):], w)
						}
						s := state{back: st.data[1], tid: uint64(uint32(st.data[2]))}
						copy(s.owners[:], k.OwnersOf(mem, k.firstRow(slot)))
						if st.data[0] == 0 || s.tid == 0 { // free, or just being taken
							continue
						}
						if len(seen) == 0 || seen[len(seen)-1] != s {
							seen = append(seen, s)
						}
					}
					if last := seen[len(seen)-1]; last.owners[0] != 7 || last.back != now {
						t.Errorf("noted at last: %+v", seen)
					}
					for i, s := range seen {
						anew := s.owners == [4]uint32{7} && s.back == now
						joined := back == now && marks != 0 && s.owners == [4]uint32{7, 8, 9}
						if before := s.owners == [4]uint32{8, 9} && s.back == back && i < 2; !before && !anew && !joined {
							t.Errorf("in the midst: %+v", seen)
							break
						}
					}
				})
			}
		}
	}
}
