package symbols

import (
	"bytes"
	"debug/elf"
	"os"
	"slices"
	"testing"
)

// TestEachPiece reads a program's segments piece by piece: nothing is left out, and bytes across two pieces
// are found.
func TestEachPiece(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	f, err := OpenFile(self)
	if err != nil {
		t.Fatal(err)
	}
	const over = 5
	most := 0
	for _, s := range f.im.segments {
		if s.typ != elf.PT_LOAD || s.filesz == 0 {
			continue
		}
		next, n := s.vaddr, 0
		for at, b := range f.im.eachPiece(s.vaddr, s.vaddr+Vaddr(s.filesz), over) {
			off := uint64(at - s.vaddr)
			if end := min(off+scanned+over, s.filesz); at != next || !bytes.Equal(b, whole[uint64(s.off)+off:uint64(s.off)+end]) {
				t.Fatalf("the piece at %v, want one at %v: %d bytes of %d", at, next, len(b), end-off)
			}
			next, n = at+scanned, n+1
		}
		if next < s.vaddr+Vaddr(s.filesz) {
			t.Errorf("the pieces end before %v, want %v", next, s.vaddr+Vaddr(s.filesz))
		}
		most = max(most, n)
	}
	if most < 2 {
		t.Errorf("a segment has %d pieces at most: nothing is tested", most)
	}
	across := 0
	for _, c := range f.code {
		if c.end-c.start < scanned+over {
			continue
		}
		at := c.start + scanned - 3
		pattern, err := f.Text(at, over+1)
		if err != nil {
			t.Fatal(err)
		}
		if found := slices.Collect(f.inCode(pattern)); !slices.Contains(found, at) {
			t.Errorf("% x is found at %v, want at %v, too", pattern, found, at)
		}
		across++
	}
	if across == 0 {
		t.Error("no code has two pieces: nothing is tested across them")
	}
}
