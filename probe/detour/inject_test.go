package detour

import (
	"math/rand"
	"testing"

	"kprobe/fetch"
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// TestInjectEveryInstruction: a call that a detour ends has the result and is behind its
// return; at every instruction on the way the program's registers can be told, before the
// record is written as those of the entry, then as those behind the return.
func TestInjectEveryInstruction(t *testing.T) {
	const result = 0x1122334455667788
	for _, tt := range []struct {
		text   string
		passed uint64 // calls before, of which each third is changed
		limit  uint64
		ends   bool
	}{
		{"p f a=%di", 2, 0, true},
		{"p f a=%di", 1, 0, false},
		{"p f a=%di s=+0(%si):string if a != 3", 2, 5, true},
		{"p f a=%di", 2, 4, false}, // four were changed
		{"p f a=%di if a == 3", 2, 0, false},
	} {
		m := newMachine(t, 1, 4096, shared{logAt, 0, 4 << 20, protRW})
		prog, err := compile(tt.text)
		if err != nil {
			t.Fatal(err)
		}
		const counters = dataAt + 1024
		m.put64(counters+ring.InjectPassed, tt.passed)
		m.put64(counters+ring.InjectChanged, 4)
		x := &Injection{Counters: counters, Every: 3, Limit: tt.limit, Result: result}
		d, err := m.place(func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
			return Build(base, m.params(), []Probe{{ID: 1, Program: prog, Inject: x}}, tail)
		})
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewSource(1))
		var regs fetch.Regs
		for i := range regs.GPR {
			regs.GPR[i] = r.Uint64()
		}
		regs.GPR[fetch.SP] = stackAt + stackSize - 4096
		regs.GPR[fetch.SI] = dataAt
		copy(m.at(dataAt), "text\x00")
		m.put64(regs.GPR[fetch.SP], m.after)
		regs.Flags = 0x100 | 0x8d7
		m.setCase(0, d.Base, &regs, &fetch.Vector{})
		behind := regs
		behind.GPR[fetch.SP] += 8
		behind.GPR[fetch.AX] = result
		ending, outside := 0, 0
		steps := m.step(d)
		for _, st := range steps {
			now := st.regs
			at := now.IP
			ok, err := d.Unwind(&now, st.mem)
			if err != nil {
				t.Errorf("at +%#x: %v", at-d.Base, err)
			}
			if !ok {
				outside++
			}
			want := regs
			skips, err := d.Skips(at, result, &now, st.mem)
			if skips {
				ending++
				want = behind
			}
			if err != nil || ending > 0 && !skips || skips && now.IP != m.after {
				t.Errorf("at +%#x: ends %v, goes on at %#x, %v", at-d.Base, skips, now.IP, err)
			}
			if now.GPR != want.GPR || (now.Flags^want.Flags)&0xcd5 != 0 {
				t.Errorf("%s at +%#x (ends %v): registers %x, want %x", tt.text, at-d.Base, skips, now.GPR, want.GPR)
			}
		}
		changed, filtered := m.get64(counters+ring.InjectChanged), m.counter(1, ring.CounterFiltered)
		if (ending > 0) != tt.ends || (outside == 0) != tt.ends || (filtered == 0) != tt.ends || tt.limit > 0 && (changed == 5) != tt.ends {
			t.Errorf("%s: %d of %d instructions end the call, %d are outside; %d changed, %d filtered", tt.text, ending, len(steps), outside, changed, filtered)
		}
	}
}
