package detour

import (
	"encoding/binary"
	"fmt"
	"testing"

	"kprobe/fetch"
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// Eight threads return from functions, deep in each other, with a text in the
// record, by exits and by return trampolines: every hit is a record, filtered or lost, every
// record is right, and every call's place is free in the end, also where the probe
// is switched off while calls are under way.
func TestTextsOfReturns(t *testing.T) {
	const threads, n = 8, 2000
	const text = "r f v=$retval a=$arg1 s=+0($arg2):string if a >= 16"
	for _, exits := range []bool{true, false} {
		for _, size := range []int{16 << 20, ring.MinRingSize} {
			for _, off := range []string{"never", "always", "after a while"} {
				t.Run(fmt.Sprintf("exits %v, rings of %d, off %s", exits, size, off), func(t *testing.T) {
					g := newTarget(t, size)
					var left func() int
					if exits {
						k := g.exits(4, text, 1024, shallow)
						left = func() int { return g.inUse(k) }
					} else {
						var pool Pool
						body := func(c *asm.Code, self asm.Label) { shallow(c, self, c.Ret) }
						g.function(body, g.returns(4, text, 1024, func(_ *Return, p Pool) { pool = p }))
						left = func() int { return len(pool.Used(g.at(pool.Addr)[:pool.Size()])) }
					}
					flag := g.at(g.params().Flags + 4*4)
					if off == "always" {
						binary.LittleEndian.PutUint32(flag, 0)
					}
					prog := g.program(text)
					var vals []fetch.Value
					var got uint64
					g.run("plain", threads, n, func(r *ring.Record) error {
						if got++; got == 100 && off == "after a while" {
							binary.LittleEndian.PutUint32(flag, 0)
						}
						data := r.Data[:len(r.Data)-ReturnTail]
						var err error
						if vals, err = prog.Decode(data, vals); err != nil {
							return err
						}
						a, ra := vals[1].Int, binary.LittleEndian.Uint64(r.Data[len(data):])
						if vals[0].Int != a&^15+2*(a&15) || a < 16 || string(vals[2].Bytes) != "hello, world" || ra == 0 || r.TSC == 0 {
							t.Errorf("%+v to %#x at %d", vals, ra, r.TSC)
						}
						return nil
					})
					var calls uint64
					for i := range uint64(n) {
						calls += i&15 + 1
					}
					calls *= threads
					filtered := uint64(threads * 16 * 17 / 2)
					c := g.counts(4)
					switch off {
					case "always":
						calls, filtered = 0, 0
					case "after a while":
						calls, filtered = c.Hits, c.Filtered
					}
					if c.Hits != calls || c.Missed != 0 || c.Filtered != filtered || c.Hits != got+c.Lost+c.Filtered || off == "never" && (c.Lost > 0) != (size == ring.MinRingSize) {
						t.Errorf("%+v, %d records of %d calls, %d filtered", c, got, calls, filtered)
					}
					if u := left(); u != 0 {
						t.Errorf("%d calls are left", u)
					}
				})
			}
		}
	}
}
