package engine

import "testing"

// TestJccTaken compares with the conditions spelled out, for every condition
// and every combination of the flags that matter.
func TestJccTaken(t *testing.T) {
	for v := range 32 {
		cf, pf, zf, sf, of := v&1 != 0, v&2 != 0, v&4 != 0, v&8 != 0, v&16 != 0
		flags := uint64(2)
		for bit, on := range map[int]bool{0: cf, 2: pf, 6: zf, 7: sf, 11: of} {
			if on {
				flags |= 1 << bit
			}
		}
		for cond, want := range []bool{
			of, !of, cf, !cf, zf, !zf, cf || zf, !cf && !zf,
			sf, !sf, pf, !pf, sf != of, sf == of, zf || sf != of, !zf && sf == of,
		} {
			if got := jccTaken(0x80|byte(cond), flags); got != want {
				t.Errorf("condition %x with flags %#x: %v, want %v", cond, flags, got, want)
			}
		}
	}
}
