package inflate

import (
	"bytes"
	"compress/flate"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"hash/adler32"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"
)

// packed is what the standard library makes of bytes.
func packed(t testing.TB, data []byte, level int) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := zlib.NewWriterLevel(&b, level)
	if err == nil {
		_, err = w.Write(data)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// samples are bytes of several kinds: none, those that don't pack, runs, records of
// which some bytes differ, what reaches back as far as can be, and rare bytes, whose
// codes are long.
func samples(r *rand.Rand) map[string][]byte {
	noise := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	}
	records := noise(64)
	for len(records) < 3*portion {
		next := bytes.Clone(records[len(records)-64:])
		for range 1 + r.IntN(5) {
			next[r.IntN(64)] = byte(r.Uint32())
		}
		records = append(records, next...)
	}
	rare := make([]byte, 0, 1<<20)
	for len(rare) < 1<<20 {
		c := byte(0)
		for c < 250 && r.IntN(2) == 0 {
			c++
		}
		rare = append(rare, c)
	}
	far := noise(window)
	return map[string][]byte{
		"none": nil, "one": {7}, "noise": noise(200000), "records": records, "rare": rare,
		"run": make([]byte, 2*portion+5), "short runs": bytes.Repeat([]byte("abcdefg\x00\x00\x00ab"), 40000),
		"far": append(bytes.Clone(far), far...), "portion": noise(portion + window), "mixed": append(noise(70000), records...),
	}
}

func TestSamples(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for name, want := range samples(r) {
		for _, level := range []int{zlib.NoCompression, zlib.BestSpeed, zlib.DefaultCompression, zlib.BestCompression, zlib.HuffmanOnly} {
			b := packed(t, want, level)
			got, err := io.ReadAll(NewReader(append(b, "what is behind it"...)))
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s, level %d: %d bytes of %d, %v", name, level, len(got), len(want), err)
			}
			if err := iotest.TestReader(NewReader(b), want); err != nil && len(want) < 1000 {
				t.Errorf("%s, level %d: %v", name, level, err)
			}
			// Any end but the true one is told.
			for range 20 {
				cut := r.IntN(len(b))
				if _, err := io.ReadAll(NewReader(b[:cut])); !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("%s, level %d: %d of %d bytes: %v", name, level, cut, len(b), err)
				}
			}
			b[len(b)-1]++
			if _, err := io.ReadAll(NewReader(b)); !errors.Is(err, ErrChecksum) {
				t.Errorf("%s, level %d: another checksum: %v", name, level, err)
			}
		}
	}
}

func TestHeaders(t *testing.T) {
	for _, b := range []string{"\x78\x00rest", "\x79\x9crest", "\x88\x1crest", "\x78\xbbrest", "ZLIB"} {
		if _, err := io.ReadAll(NewReader([]byte(b))); !errors.Is(err, ErrHeader) {
			t.Errorf("%q: %v", b, err)
		}
	}
}

// bitWriter writes streams that no packer makes.
type bitWriter struct {
	b []byte
	n int
}

func (w *bitWriter) put(v, n int) {
	for i := range n {
		if w.n%8 == 0 {
			w.b = append(w.b, 0)
		}
		w.b[len(w.b)-1] |= byte(v>>i&1) << (w.n % 8)
		w.n++
	}
}

// dynamic writes the header of a block with its own codes: every length is written
// by itself, with a code of four bits for each of the sixteen lengths.
func (w *bitWriter) dynamic(lengths, distances []int) {
	w.put(1, 1)
	w.put(2, 2)
	w.put(len(lengths)-257, 5)
	w.put(len(distances)-1, 5)
	w.put(15, 4)
	for _, s := range clenOrder {
		if s < 16 {
			w.put(4, 3)
		} else {
			w.put(0, 3)
		}
	}
	for _, l := range append(bytesOf(lengths), bytesOf(distances)...) {
		for i := 3; i >= 0; i-- { // codes begin with their highest bit
			w.put(int(l)>>i&1, 1)
		}
	}
}

func bytesOf(list []int) (out []byte) {
	for _, v := range list {
		out = append(out, byte(v))
	}
	return out
}

func lengthsOf(n int, of map[int]int) []int {
	out := make([]int, n)
	for s, l := range of {
		out[s] = l
	}
	return out
}

// TestCodes: which codes are taken, and what of them is an error.
func TestCodes(t *testing.T) {
	for _, c := range []struct {
		name               string
		lengths, distances []int
		bits               []int // of the block, in their order
		want               string
		err                error
	}{
		{"no distances", lengthsOf(257, map[int]int{'a': 1, 256: 1}), []int{0}, []int{0, 0, 1}, "aa", nil},
		{"one distance", lengthsOf(258, map[int]int{'a': 2, 256: 2, 257: 1}), []int{1}, []int{1, 0, 0, 0, 1, 1}, "aaaa", nil},
		{"a distance without a code", lengthsOf(258, map[int]int{'a': 2, 256: 2, 257: 1}), []int{1}, []int{1, 0, 0, 1, 1, 1}, "", ErrCorrupt},
		{"a copy without distances", lengthsOf(258, map[int]int{'a': 2, 256: 2, 257: 1}), []int{0}, []int{1, 0, 0, 0, 1, 1}, "", ErrCorrupt},
		{"a copy from before the start", lengthsOf(258, map[int]int{'a': 2, 256: 2, 257: 1}), []int{1}, []int{0, 0, 1, 1}, "", ErrCorrupt},
		{"only the end", lengthsOf(257, map[int]int{256: 1}), []int{0}, []int{0}, "", nil},
		{"the code of no symbol", lengthsOf(257, map[int]int{256: 1}), []int{0}, []int{1, 0}, "", ErrCorrupt},
		{"no end", lengthsOf(257, map[int]int{'a': 1, 'b': 1}), []int{0}, []int{0}, "", ErrCorrupt},
		{"too many codes", lengthsOf(257, map[int]int{'a': 1, 'b': 1, 256: 1}), []int{0}, []int{0}, "", ErrCorrupt},
		{"too few codes", lengthsOf(257, map[int]int{'a': 2, 256: 2}), []int{0}, []int{0, 0}, "", ErrCorrupt},
		{"too few distances", lengthsOf(257, map[int]int{'a': 1, 256: 1}), []int{2, 2}, []int{1}, "", ErrCorrupt},
		{"too many lengths", lengthsOf(287, map[int]int{'a': 1, 256: 1}), []int{0}, []int{1}, "", ErrCorrupt},
		{"too many distances", lengthsOf(257, map[int]int{'a': 1, 256: 1}), make([]int, 31), []int{1}, "", ErrCorrupt},
		{"long codes", lengthsOf(257, map[int]int{
			'a': 1, 'b': 2, 'c': 3, 'd': 4, 'e': 5, 'f': 6, 'g': 7, 'h': 8, 'i': 9, 'j': 10,
			'k': 11, 'l': 12, 'm': 13, 'n': 14, 'o': 15, 256: 15,
		}), []int{0}, []int{
			0,
			1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, // o
			1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, // l
			1, 0, // b
			1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
		}, "aolb", nil},
	} {
		w := bitWriter{b: []byte{0x78, 0x9c}, n: 16}
		w.dynamic(c.lengths, c.distances)
		for _, b := range c.bits {
			w.put(b, 1)
		}
		b := binary.BigEndian.AppendUint32(w.b, adler32.Checksum([]byte(c.want)))
		got, err := io.ReadAll(NewReader(b))
		if !errors.Is(err, c.err) || c.err == nil && string(got) != c.want {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
		theirs, terr := io.ReadAll(flate.NewReader(bytes.NewReader(b[2:])))
		if (terr == nil) != (c.err == nil) || c.err == nil && string(theirs) != c.want {
			t.Errorf("%s: the standard library has %q, %v", c.name, theirs, terr)
		}
	}
}

// FuzzInflate holds any bytes against the standard library's reader: what it reads is read,
// what is an error for it is one.
func FuzzInflate(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, data := range samples(r) {
		data = data[:min(len(data), 3000)]
		for _, level := range []int{zlib.NoCompression, zlib.BestSpeed, zlib.BestCompression, zlib.HuffmanOnly} {
			b := packed(f, data, level)
			f.Add(b[2:len(b)-4], uint16(0))
			f.Add(b[2:len(b)-4], uint16(r.Uint32()))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, flip uint16) {
		if len(b) > 0 {
			b = bytes.Clone(b)
			b[int(flip)%len(b)] ^= byte(flip >> 8)
		}
		source := bytes.NewReader(b)
		const most = 4 << 20
		want, werr := io.ReadAll(io.LimitReader(flate.NewReader(source), most))
		if len(want) == most {
			return
		}
		used := len(b) - source.Len()
		whole := append([]byte{0x78, 0x9c}, b[:used]...)
		whole = binary.BigEndian.AppendUint32(whole, adler32.Checksum(want))
		got, err := io.ReadAll(NewReader(whole))
		if (werr == nil) != (err == nil) {
			t.Fatalf("%v, the standard library's %v", err, werr)
		}
		if err == nil && !bytes.Equal(got, want) {
			t.Fatalf("%d bytes, the standard library has %d, or others", len(got), len(want))
		}
	})
}

// BenchmarkInflate reads what packs as debug information does: to some half.
func BenchmarkInflate(b *testing.B) {
	data := samples(rand.New(rand.NewPCG(5, 6)))["records"]
	src := packed(b, data, zlib.BestCompression)
	b.SetBytes(int64(len(data)))
	b.ReportMetric(float64(len(data))/float64(len(src)), "ratio")
	for b.Loop() {
		if _, err := io.Copy(io.Discard, NewReader(src)); err != nil {
			b.Fatal(err)
		}
	}
}
