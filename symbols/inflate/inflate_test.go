package inflate

import (
	"bytes"
	"compress/flate"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/adler32"
	"io"
	"math/rand"
	"testing"

	fastzlib "github.com/klauspost/compress/zlib"
)

// packed makes a stream.
func packed(t testing.TB, b []byte, level int) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := zlib.NewWriterLevel(&out, level)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// texts are bytes of many kinds: none, one, copies from near and far, noise, and codes of many lengths.
func texts() map[string][]byte {
	rnd := rand.New(rand.NewSource(3))
	noise := make([]byte, 300<<10)
	rnd.Read(noise)
	skew := make([]byte, 700<<10) // a byte is half as frequent as the one before it: codes of all lengths
	for i := range skew {
		for skew[i] = 0; rnd.Intn(2) == 0 && skew[i] < 40; skew[i]++ {
		}
	}
	words := make([]byte, 0, 1200<<10)
	for len(words) < 1200<<10-100 {
		switch rnd.Intn(4) {
		case 0:
			words = append(words, noise[:1+rnd.Intn(5)]...)
		case 1:
			words = binary.LittleEndian.AppendUint32(words, uint32(rnd.Intn(100000)))
		default:
			if n := 1 + rnd.Intn(50); len(words) > n {
				at := max(0, len(words)-1-rnd.Intn(1<<(1+rnd.Intn(15)))-n)
				words = append(words, words[at:at+n]...)
			}
		}
	}
	return map[string][]byte{
		"none": {}, "one": {7}, "zeros": make([]byte, 1<<20), "pairs": bytes.Repeat([]byte("ab"), 400<<10), "noise": noise, "skew": skew, "words": words,
		"window": append(append(bytes.Clone(noise[:32<<10]), noise[:32<<10]...), noise...),
		"edge":   bytes.Repeat([]byte("0123456789abcdef"), (blockBytes+slack)/16),
	}
}

// TestCopy: what a compressor made comes out again, for each of its methods.
func TestCopy(t *testing.T) {
	for name, want := range texts() {
		for _, level := range []int{flate.HuffmanOnly, flate.NoCompression, flate.BestSpeed, 4, flate.BestCompression} {
			in := packed(t, want, level)
			for _, tail := range []int{0, 1, 20} { // bytes that follow
				var got bytes.Buffer
				read := 0
				err := Copy(&got, append(bytes.Clone(in), make([]byte, tail)...), int64(len(want)), func(n int) { read = n })
				if err != nil || !bytes.Equal(got.Bytes(), want) {
					t.Fatalf("%s at level %d, %d bytes behind: %d bytes of %d, %v", name, level, tail, got.Len(), len(want), err)
				}
				if read < len(in)-4-8 || read > len(in)+tail {
					t.Errorf("%s at level %d: %d of %d bytes were read", name, level, read, len(in))
				}
			}
		}
	}
}

// TestFixed: a block with the codes of RFC 1951, 3.2.6, and a stored block without bytes.
func TestFixed(t *testing.T) {
	in := []byte{0x78, 0x9c, 0x00, 0x00, 0x00, 0xff, 0xff, 0x4b, 0x4c, 0x4a, 0x4e, 0x49, 0x4d, 0x4b, 0x04, 0x93, 0x00}
	want, err := io.ReadAll(flate.NewReader(bytes.NewReader(in[2:])))
	if err != nil || len(want) < 8 {
		t.Fatalf("%q, %v", want, err)
	}
	in = binary.BigEndian.AppendUint32(in, adler32.Checksum(want))
	var got bytes.Buffer
	if err := Copy(&got, in, int64(len(want)), nil); err != nil || !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%q, want %q, %v", got.Bytes(), want, err)
	}
}

// TestDoubt: a stream that is cut, of another length, or with a changed bit is in doubt, or says the same.
func TestDoubt(t *testing.T) {
	for name, want := range texts() {
		want = want[:min(len(want), 700<<10)] // more than a block
		in := packed(t, want, 6)
		for _, size := range []int64{int64(len(want)) - 1, int64(len(want)) + 1, 0, 1 << 40} {
			if size == int64(len(want)) {
				continue
			}
			if err := Copy(io.Discard, in, size, nil); !errors.Is(err, ErrDoubt) {
				t.Errorf("%s as %d bytes: %v", name, size, err)
			}
		}
		rnd := rand.New(rand.NewSource(9))
		for range 25 {
			if err := Copy(io.Discard, in[:rnd.Intn(len(in))], int64(len(want)), nil); !errors.Is(err, ErrDoubt) {
				t.Errorf("%s, cut: %v", name, err)
			}
			bad := bytes.Clone(in)
			bad[rnd.Intn(len(bad))] ^= 1 << rnd.Intn(8)
			var got bytes.Buffer
			if err := Copy(&got, bad, int64(len(want)), nil); !errors.Is(err, ErrDoubt) && (err != nil || !bytes.Equal(got.Bytes(), want)) {
				t.Errorf("%s, a bit changed: %d bytes, %v", name, got.Len(), err)
			}
		}
	}
}

// failing is a writer that takes some bytes.
type failing struct{ left int }

func (f *failing) Write(b []byte) (int, error) {
	if f.left -= len(b); f.left < 0 {
		return 0, io.ErrShortWrite
	}
	return len(b), nil
}

// TestWriteError: an error of the writer is returned, whenever it comes.
func TestWriteError(t *testing.T) {
	want := texts()["words"]
	in := packed(t, want, 6)
	for left := 0; left < len(want); left += blockBytes / 2 {
		if err := Copy(&failing{left}, in, int64(len(want)), nil); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("after %d bytes: %v", left, err)
		}
	}
}

// TestCutShort: if reading packed panics, as a mapped file does that is cut short, no goroutine stays.
func TestCutShort(t *testing.T) {
	want := texts()["words"]
	in := packed(t, want, 6)
	written := make(chan struct{}, 100)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_ = Copy(telling{written}, in, int64(len(want)), func(int) { panic("cut") })
	}()
	select {
	case <-written: // before Copy has returned
	default:
		t.Error("the other goroutine was not waited for")
	}
}

// telling is a writer that says so.
type telling struct{ written chan<- struct{} }

func (w telling) Write(b []byte) (int, error) {
	w.written <- struct{}{}
	return len(b), nil
}

// FuzzCopy compares with the standard library: what comes out without doubt is what comes out there.
func FuzzCopy(f *testing.F) {
	for _, b := range texts() {
		f.Add(packed(f, b[:min(len(b), 3000)], 6)[2:])
		f.Add(packed(f, b[:min(len(b), 3000)], 0)[2:])
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		const most = 4 << 20
		b := bytes.NewReader(stream)
		want, err := io.ReadAll(io.LimitReader(flate.NewReader(b), most))
		if len(want) == most {
			return
		}
		in := append([]byte{0x78, 0x9c}, stream[:len(stream)-b.Len()]...)
		in = binary.BigEndian.AppendUint32(in, adler32.Checksum(want))
		var got bytes.Buffer
		fail := Copy(&got, in, int64(len(want)), nil)
		if err != nil && fail == nil {
			t.Fatalf("unpacked; the library says %v", err)
		}
		if fail == nil && !bytes.Equal(got.Bytes(), want) {
			t.Fatal("other bytes")
		}
	})
}

// BenchmarkCopy is beside the reader of any stream.
func BenchmarkCopy(b *testing.B) {
	for name, want := range texts() {
		if len(want) < 500<<10 {
			continue
		}
		in := packed(b, want, 6)
		b.Run(fmt.Sprintf("%s/copy", name), func(b *testing.B) {
			b.SetBytes(int64(len(want)))
			for b.Loop() {
				if err := Copy(io.Discard, in, int64(len(want)), nil); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("%s/reader", name), func(b *testing.B) {
			b.SetBytes(int64(len(want)))
			for b.Loop() {
				r, err := fastzlib.NewReader(bytes.NewReader(in))
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
