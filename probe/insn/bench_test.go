package insn

import (
	"debug/elf"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

func libcText(b *testing.B) ([]byte, uint64) {
	f, err := elf.Open(fixture.NeedFile(b, strings.Fields(libraries[0])...))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	s := f.Section(".text")
	text, err := s.Data()
	if err != nil {
		b.Fatal(err)
	}
	return text, s.Addr
}

// BenchmarkDecode reads all of libc's code, one instruction behind the other.
func BenchmarkDecode(b *testing.B) {
	text, _ := libcText(b)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		for off := 0; off < len(text); {
			i, _ := Decode(text[off:])
			off += max(int(i.Len), 1)
		}
	}
}

func BenchmarkSweep(b *testing.B) {
	text, at := libcText(b)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := Sweep(text, at, SweepOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRelocate(b *testing.B) {
	code := []byte{0x48, 0x8b, 0x05, 0, 1, 0, 0}
	for b.Loop() {
		if _, err := Relocate(code, 0x400000, 0x500000, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
