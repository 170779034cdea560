package symbols

import (
	"bytes"
	"compress/zlib"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"
)

// inflateInputs are of every kind of block: stored, of fixed codes, of codes of all lengths.
func inflateInputs() map[string][]byte {
	r := rand.New(rand.NewPCG(1, 2))
	noise, text, skew := make([]byte, 700_001), []byte{}, make([]byte, 900_000)
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	for len(text) < 1_500_000 {
		n := min(len(text), r.IntN(300))
		at := max(0, len(text)-1-r.IntN(40_000))
		text = append(append(text, text[at:min(at+n, len(text))]...), byte(r.IntN(20)), byte(r.Uint32()))
	}
	for i := range skew {
		for skew[i] < 255 && r.IntN(3) > 0 { // each value twice as rare as the one before: long codes
			skew[i]++
		}
	}
	return map[string][]byte{"nothing": {}, "one byte": {7}, "zeros": make([]byte, 1_000_000), "noise": noise, "text": text, "skew": skew,
		"short": []byte("abcabcabcabc"), "all": append(append(append([]byte{}, text...), noise...), skew...)}
}

// TestInflate compares with the standard library's writer, whole and in small reads.
func TestInflate(t *testing.T) {
	for name, want := range inflateInputs() {
		for _, level := range []int{zlib.NoCompression, zlib.BestSpeed, zlib.DefaultCompression, zlib.BestCompression, zlib.HuffmanOnly} {
			var packed bytes.Buffer
			w, err := zlib.NewWriterLevel(&packed, level)
			if err != nil {
				t.Fatal(err)
			}
			for at := 0; at < len(want); at += 300_000 {
				w.Write(want[at:min(at+300_000, len(want))]) //nolint:errcheck // to memory
				w.Flush()                                    //nolint:errcheck // to memory
			}
			w.Close() //nolint:errcheck // to memory
			for _, wrap := range []func(io.Reader) io.Reader{func(r io.Reader) io.Reader { return r }, iotest.HalfReader} {
				z, err := newInflater(packed.Bytes())
				if err != nil {
					t.Fatal(err)
				}
				have, err := io.ReadAll(wrap(z))
				if err != nil || !bytes.Equal(have, want) {
					t.Fatalf("%s at level %d: %d bytes, want %d: %v", name, level, len(have), len(want), err)
				}
			}
			damaged := bytes.Clone(packed.Bytes())
			for cut := range min(len(damaged), 40) {
				z, err := newInflater(damaged[:len(damaged)-1-cut])
				if err == nil {
					_, err = io.ReadAll(z)
				}
				if err == nil {
					t.Fatalf("%s at level %d without its last %d bytes is no error", name, level, cut+1)
				}
			}
		}
	}
}

// FuzzInflate: what the standard library reads is read the same, and what it refuses is
// refused.
func FuzzInflate(f *testing.F) {
	for _, b := range inflateInputs() {
		var packed bytes.Buffer
		w := zlib.NewWriter(&packed)
		w.Write(b[:min(len(b), 2000)]) //nolint:errcheck // to memory
		w.Close()                      //nolint:errcheck // to memory
		f.Add(packed.Bytes())
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var want, have []byte
		r, werr := zlib.NewReader(bytes.NewReader(in))
		if werr == nil {
			want, werr = io.ReadAll(io.LimitReader(r, 1<<22))
		}
		z, err := newInflater(in)
		if err == nil {
			have, err = io.ReadAll(io.LimitReader(z, 1<<22))
		}
		if (err == nil) != (werr == nil) || err == nil && !bytes.Equal(have, want) {
			t.Fatalf("%v, want %v: %d bytes, want %d", err, werr, len(have), len(want))
		}
	})
}
