package detour

import (
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// swap takes a snapshot (probe/ring, swap.go) and continues at no. The snapshot's last hit is this one, which is
// recorded in the area that where names. If another thread has taken a snapshot with this hit meanwhile,
// swap does nothing, and the trigger's count stays. work is a temporary.
func (b *builder) swap(t *Trigger, where, work asm.Mem, ends bool, over, no asm.Label) {
	fresh, mine, upper := b.NewLabel(), b.NewLabel(), b.NewLabel()
	cpus := int32(b.p.CPUMask + 1)
	swaps := b.p.Control + ring.ControlSwaps
	if ends {
		b.unlessOver(over)
	}
	b.MovAbs(asm.CX, swaps)
	b.Load(asm.W64, asm.CX, asm.At(asm.CX, 0))
	b.Store(asm.W64, work, asm.CX)
	b.Load(asm.W64, asm.AX, where)
	b.Test(asm.W64, asm.AX, asm.AX)
	b.Jcc(asm.E, fresh)
	b.MovAbs(asm.DX, b.p.PerCPU)
	b.Op(asm.Sub, asm.W64, asm.AX, asm.DX)
	b.ShiftImm(asm.Shr, asm.W64, asm.AX, b.p.AreaShift)
	b.Op(asm.Xor, asm.W32, asm.AX, asm.CX)
	b.TestImm(asm.W32, asm.AX, cpus)
	b.Jcc(asm.NE, no)
	b.Bind(fresh)
	b.spend(t, no)
	b.tsc()
	b.Store(asm.W64, where, asm.AX)
	b.Load(asm.W64, asm.AX, work)
	b.Lea(asm.DX, asm.At(asm.AX, cpus))
	b.MovAbs(asm.CX, swaps)
	b.Lock()
	b.Cmpxchg(asm.W64, asm.At(asm.CX, 0), asm.DX)
	b.Jcc(asm.E, mine)
	if t.Left != 0 {
		b.giveBack(t)
	}
	b.Jmp(no)
	b.Bind(mine)
	b.Load(asm.W64, asm.DX, where)
	b.TestImm(asm.W32, asm.AX, cpus)
	b.Jcc(asm.NE, upper)
	b.Store(asm.W64, asm.At(asm.CX, ring.ControlSwapped-ring.ControlSwaps), asm.DX)
	b.Jmp(no)
	b.Bind(upper)
	b.Store(asm.W64, asm.At(asm.CX, ring.ControlSwapped-ring.ControlSwaps+8), asm.DX)
	b.Jmp(no)
}
