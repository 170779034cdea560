package plan

import (
	"os"
	"testing"

	"kprobe/internal/fixture"
)

func TestScanTargets(t *testing.T) {
	// +0: jmp +0x10; ret, no-ops. +8: je back into it; jmp +0xa (within); +0x10: call
	// +2, call far outside; 06 is no instruction.
	text := unhex(t, "eb 0e c3 90 90 90 90 90"+"74 fa eb 00 90 90 90 90"+"e8 ed ff ff ff e8 00 00 00 70 06 c3")
	s := ScanTargets(text, base, []Range{
		{base - 100, base}, {base, base + 8}, {base + 8, base + 14}, {base + 16, base + 99}, {base + 1000, base + 1001},
	})
	for at := uint64(0); at < 40; at++ {
		want := at == 0 || at == 8 || at == 16 || at == 4 || at == 2
		if s.Has(base+at) != want {
			t.Errorf("+%#x: %v", at, !want)
		}
	}
	if s.Len() != 5 {
		t.Errorf("%d addresses", s.Len())
	}
	s.Add(base+3, base+3, 7)
	if !s.Has(base+3) || !s.Has(7) || s.Len() != 7 {
		t.Errorf("after Add: %d addresses", s.Len())
	}
}

func BenchmarkScanTargets(b *testing.B) {
	o := libc(b)
	if os.Getenv("KPROBE_TEST_FULL") != "" {
		o = loadObject(b, fixture.NeedFile(b, "/usr/bin/node"))
	}
	b.SetBytes(int64(len(o.text)))
	for b.Loop() {
		ScanTargets(o.text, o.base, o.funcs)
	}
}
