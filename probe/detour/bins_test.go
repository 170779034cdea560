package detour

import (
	"math/rand"
	"testing"

	"kprobe/fetch"
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// Each number is counted in the bin that ring.Form.Bin says, or recorded where it has
// none or can't be read, and nothing of the program's changes.
func TestBins(t *testing.T) {
	values := []uint64{0, 1, 2, 3, 4, 5, 126, 127, 128, 129, 255, 256, 1 << 32, 1<<ring.FineBits - 1, 1 << ring.FineBits, 1 << 63, ^uint64(0), ring.BinCells*8 - 1, ring.BinCells * 8}
	rng := rand.New(rand.NewSource(1))
	for range 60 {
		values = append(values, rng.Uint64()>>rng.Intn(64))
	}
	const row = 1 << 19
	for _, seq := range []int32{0, 0x9a0} {
		for _, form := range []ring.Form{ring.FormFine, ring.FormLog2, ring.FormShift} {
			for _, text := range []string{"p f a=%di", "p f a=%di b=%si if a >= 0 && b != 3", "p f a=+0(%r8):u64"} {
				m := newMachine(t, len(values), len(values)*4096)
				m.rseq = seq
				x := &Bins{Form: form, Shift: 3, Row: row}
				want := map[int]uint64{}
				records, sum, most, least := uint64(0), uint64(0), uint64(0), ^uint64(0)
				for i, v := range values {
					regs := fetch.Regs{IP: 0x1234}
					regs.GPR[fetch.SP] = stackAt + uint64(i+1)*stackSize - 1024
					regs.GPR[fetch.DI], regs.GPR[fetch.Reg(asm.R8)] = v, dataAt+uint64(8*i)
					m.put64(dataAt+uint64(8*i), v)
					read := true
					if i == 7 { // the address leads nowhere
						regs.GPR[fetch.Reg(asm.R8)] = 8
						read = text != "p f a=+0(%r8):u64"
					}
					// Two probes at a place: each counts for itself.
					probes := []Probe{{ID: 1, Program: must(t, text), Bins: x}, {ID: 2, Program: must(t, "p f s=%di c=%si"), IP: 1}}
					d, err := m.place(func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
						return Build(base, m.params(), probes, tail)
					})
					if err != nil {
						t.Fatal(err)
					}
					m.setCase(i, d.Base, &regs, &fetch.Vector{})
					if bin, ok := form.Bin(v, x.Shift); ok && read {
						want[bin]++
						sum, most, least = sum+v, max(most, v), min(least, v)
					} else {
						records++
					}
				}
				m.run(len(values))
				for i := range values {
					if !m.checkCase(i) {
						t.Fatalf("form %d, %s", form, text)
					}
				}
				counted := uint64(0)
				for i := range ring.BinCells {
					n := m.get64(cpusAt + row + ring.BinsOff + uint64(8*i))
					if counted += n; n != want[i] {
						t.Errorf("form %d, %s: bin %d has %d, want %d", form, text, i, n, want[i])
					}
				}
				if got := m.counter(1, ring.CounterHits); got != counted || counted+records != uint64(len(values)) {
					t.Errorf("form %d, %s: %d hits are counted, %d in bins, %d were to be recorded of %d", form, text, got, counted, records, len(values))
				}
				if form != ring.FormFine {
					continue
				}
				at := func(off uint64) uint64 { return m.get64(cpusAt + row + off) }
				if at(ring.BinSum) != sum || at(ring.BinMost) != most || ^at(ring.BinLeast) != least {
					t.Errorf("%s: sum, most, least are %d, %d, %d, want %d, %d, %d", text, at(ring.BinSum), at(ring.BinMost), ^at(ring.BinLeast), sum, most, least)
				}
			}
		}
	}
}
