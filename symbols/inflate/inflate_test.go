package inflate

import (
	"bytes"
	"compress/zlib"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"testing"
	"testing/iotest"
)

// contents are what is packed: nothing, runs, text, code, noise.
func contents(t testing.TB) map[string][]byte {
	t.Helper()
	rnd := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 3*chunk+17)
	for i := range noise {
		noise[i] = byte(rnd.Uint32())
	}
	few := make([]byte, 2*chunk)
	for i := range few {
		few[i] = "abcdefgh"[rnd.IntN(8)]
	}
	far := make([]byte, 0, 4*chunk)
	for len(far) < 4*chunk-400 {
		if n := len(far); n > 300 && rnd.IntN(3) > 0 {
			at := n - 1 - rnd.IntN(min(n-1, window))
			for range 3 + rnd.IntN(256) { // runs that overlap themselves too
				far = append(far, far[at])
				at++
			}
			continue
		}
		far = append(far, noise[rnd.IntN(len(noise))])
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{"nothing": nil, "a byte": {7}, "zeros": make([]byte, 5*chunk), "noise": noise, "few": few,
		"far": far, "code": self[:min(len(self), 3<<20)], "fibonacci": fibonacci()}
}

// fibonacci has bytes as frequent as Fibonacci's numbers: its codes are the longest.
func fibonacci() []byte {
	var out []byte
	a, b := 1, 1
	for i := range 22 {
		out = append(out, bytes.Repeat([]byte{byte(i * 11)}, a)...)
		a, b = b, a+b
	}
	rand.New(rand.NewPCG(3, 4)).Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

func pack(t testing.TB, b []byte, level int) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := zlib.NewWriterLevel(&out, level)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(b); i += 50_000 { // blocks that end before they are full
		if _, err := w.Write(b[i:min(i+50_000, len(b))]); err != nil {
			t.Fatal(err)
		}
		if i%3 == 0 && i < 500_000 {
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestUnpacks(t *testing.T) {
	for name, b := range contents(t) {
		for _, level := range []int{zlib.HuffmanOnly, zlib.NoCompression, zlib.BestSpeed, zlib.DefaultCompression, zlib.BestCompression} {
			packed := pack(t, b, level)
			got, err := io.ReadAll(NewReader(packed))
			if err != nil || !bytes.Equal(got, b) {
				t.Errorf("%s, level %d: %d bytes of %d, %v", name, level, len(got), len(b), err)
			}
			var all bytes.Buffer
			if n, err := NewReader(packed).WriteTo(&all); err != nil || n != int64(len(b)) || !bytes.Equal(all.Bytes(), b) {
				t.Errorf("%s, level %d: %d bytes written of %d, %v", name, level, n, len(b), err)
			}
		}
	}
	b := contents(t)["few"]
	if err := iotest.TestReader(NewReader(pack(t, b[:5000], 6)), b[:5000]); err != nil {
		t.Error(err)
	}
}

// TestDamage: what is cut short, changed or isn't packed at all is an error, and of
// what a checksum doesn't cover nothing is given that isn't so.
func TestDamage(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for name, b := range contents(t) {
		b = b[:min(len(b), 60_000)]
		packed := pack(t, b, 6)
		for range 60 {
			cut := rnd.IntN(len(packed))
			if got, err := io.ReadAll(NewReader(packed[:cut])); !errors.Is(err, io.ErrUnexpectedEOF) || !bytes.HasPrefix(b, got) {
				t.Fatalf("%s cut at %d of %d: %d bytes, %v", name, cut, len(packed), len(got), err)
			}
			bad := bytes.Clone(packed)
			bad[rnd.IntN(len(bad))] ^= 1 << rnd.IntN(8)
			if got, err := io.ReadAll(NewReader(bad)); err == nil && !bytes.Equal(got, b) {
				t.Fatalf("%s: a changed bit is no error: %d bytes of %d", name, len(got), len(b))
			}
		}
	}
	for _, b := range []string{"", "x", "\x78", "\x78\x9c", "\x78\x9d\x01", "\x78\xbb\x00\x00\x00\x00", "\x79\x9c\x03\x00\x00\x00\x00\x01",
		"\x78\x9c\x07", "\x78\x9c\x01\x01\x00\x01\x00x", "\x78\x9c\x63\x00\x00"} {
		if got, err := io.ReadAll(NewReader([]byte(b))); err == nil || len(got) > 0 {
			t.Errorf("%q: %q, %v", b, got, err)
		}
	}
	// A match from before the first byte.
	if got, err := io.ReadAll(NewReader([]byte("\x78\x9c\x03\x02\x00\x00\x00\x00\x00\x01"))); err == nil || len(got) > 0 {
		t.Errorf("%q, %v", got, err)
	}
}

// FuzzUnpack holds what is unpacked against compress/zlib.
func FuzzUnpack(f *testing.F) {
	for _, b := range contents(f) {
		b = b[:min(len(b), 3000)]
		for _, level := range []int{zlib.HuffmanOnly, 0, 1, 9} {
			f.Add(pack(f, b, level))
		}
	}
	f.Fuzz(func(t *testing.T, packed []byte) {
		r, err := zlib.NewReader(bytes.NewReader(packed))
		var want []byte
		if err == nil {
			want, err = io.ReadAll(io.LimitReader(r, 16<<20))
		}
		if len(want) == 16<<20 {
			return
		}
		got, err2 := io.ReadAll(NewReader(packed))
		if (err == nil) != (err2 == nil) || err == nil && !bytes.Equal(got, want) || !bytes.HasPrefix(want, got) {
			t.Fatalf("%d bytes, %v; compress/zlib gives %d, %v", len(got), err2, len(want), err)
		}
	})
}

func BenchmarkUnpack(b *testing.B) {
	text := contents(b)["code"]
	packed := pack(b, text, 6)
	for name, open := range map[string]func() io.Reader{
		"here":     func() io.Reader { return NewReader(packed) },
		"standard": func() io.Reader { r, _ := zlib.NewReader(bytes.NewReader(packed)); return r },
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if _, err := io.Copy(io.Discard, open()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
