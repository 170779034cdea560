package detour

import (
	"fmt"
	"testing"

	"kprobe/fetch"
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// Where a detour that counts or looks by itself writes to the stack, and there may be none, the program's registers
// are what a fallback handler takes them for (PushFault).
func TestOwnPushes(t *testing.T) {
	for _, x := range []struct{ dead, leaves bool }{{false, false}, {true, false}, {false, true}} {
		dead, leaves := x.dead, x.leaves // the flags; at a return, where they never are
		t.Run(fmt.Sprintf("flags dead: %v, at a return: %v", dead, leaves), func(t *testing.T) {
			m := newMachine(t, 1, 64<<10, shared{logAt, 0, 4 << 20, protRW})
			m.rseq = rseqArea(t)
			k, p := m.tallied(true)
			p.FlagsDead = dead
			regs := fetch.Regs{Flags: 0x302 | 0x8d5} // step
			for i := range regs.GPR {
				regs.GPR[i] = uint64(i) * 0x1111_1111_1111
			}
			regs.GPR[fetch.SP] = stackAt + stackSize - 4096
			probes := []Probe{{ID: 7, Program: must(t, "r f"), CountOnly: true, Anywhere: true}}
			d, err := m.place(func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
				if leaves {
					return BuildLeaves(base, &p, probes, k, 0, tail)
				}
				return Build(base, &p, []Probe{{ID: 7, Program: must(t, "p f"), CountOnly: true}}, tail)
			})
			if err != nil {
				t.Fatal(err)
			}
			const back = codeAt + 0x1234
			m.put64(regs.GPR[fetch.SP], back)
			row := k.Addr + uint64(k.offset(k.firstRow(regs.GPR[fetch.SP])))
			m.put64(row+callSlot, regs.GPR[fetch.SP])
			m.put64(row+callReturn, back)
			m.put64(row+1<<k.Shift-ownerBefore, anywhere|7)
			m.setCase(0, d.Base, &regs, &fetch.Vector{})
			pushes, seen := map[uint64]Push{}, 0
			for x := range d.Pushes() {
				pushes[x.At] = x
			}
			for _, st := range m.step(d) {
				x, is := pushes[st.regs.IP]
				if !is {
					continue
				}
				seen++
				now := st.regs
				now.GPR[fetch.SP] += uint64(x.Depth)
				if x.AX {
					now.GPR[fetch.AX] = regs.GPR[fetch.AX] // the first push has written it
				}
				if now.GPR != regs.GPR {
					t.Errorf("push at +%#x: registers %x, want %x", x.At-d.Base, now.GPR, regs.GPR)
				}
			}
			if n := m.counter(7, ring.CounterHits) + m.counter(7, ring.CounterHits+ring.CounterSeq); seen < 3 || n != 1 {
				t.Errorf("%d of %d pushes, %d hits", seen, len(pushes), n)
			}
		})
	}
}
