package recording

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

// FuzzReader: whatever a file says, a reader gives hits that are whole, or a clear error;
// and it ends.
func FuzzReader(f *testing.F) {
	file, _ := sample(f, 30)
	f.Add(file)
	f.Add(file[:len(file)/2])
	f.Add(someRecords(f, false))
	f.Add(someRecords(f, true))
	f.Add([]byte(Magic + "\x01\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		mended := mend(b)
		for _, b := range [][]byte{b, mended} {
			r, err := NewReader(bytes.NewReader(b))
			for n := 0; err == nil; n++ {
				var h *Hit
				if h, err = r.Next(); err != nil {
					break
				}
				if h.Event == nil || h.Thread == nil || h.Place == nil || len(h.Values) != len(h.Event.Fields) || h.Event.Return && h.Caller == nil {
					t.Fatalf("a hit that isn't whole: %+v", h)
				}
				if n > len(b) {
					t.Fatal("more hits than bytes")
				}
				_ = describeAny(h)
			}
			var damaged *DamagedError
			var version *VersionError
			if err != io.EOF && !errors.As(err, &damaged) && !errors.As(err, &version) && !errors.Is(err, ErrNotRecording) {
				t.Fatalf("an error of no known kind: %v", err)
			}
		}
	})
}

func describeAny(h *Hit) string {
	s := h.Place.String() + h.Thread.Comm
	if h.Stack != nil {
		for _, p := range h.Stack.Frames {
			s += p.String()
		}
	}
	return s
}

// mend gives blocks the sums that they should have, so that more than those is tried.
func mend(b []byte) []byte {
	b = bytes.Clone(b)
	for at := len(Magic) + 4; at+blockHead <= len(b); {
		n := int(uint32(b[at+4]) | uint32(b[at+5])<<8 | uint32(b[at+6])<<16 | uint32(b[at+7])<<24)
		if n < 0 || n > MaxBlock || at+blockHead+n > len(b) {
			break
		}
		putSum(b[at : at+blockHead+n])
		at += blockHead + n
	}
	return b
}

// TestTwoWriters: events, places and threads may be given to several writers.
func TestTwoWriters(t *testing.T) {
	e, p, th := &Event{Name: "e"}, &Place{Name: "p", Addr: 1}, &Thread{PID: 1, TID: 1}
	var files [2]bytes.Buffer
	var ws [2]*Writer
	for i := range ws {
		var err error
		if ws[i], err = NewWriter(&files[i], &Header{}); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 10 {
		if err := ws[n%2].Hit(&Hit{Event: e, Thread: th, Place: p, Time: uint64(n)}); err != nil {
			t.Fatal(err)
		}
	}
	for i, w := range ws {
		if err := w.Close(&End{}); err != nil {
			t.Fatal(err)
		}
		if _, got, err := read(files[i].Bytes()); err != io.EOF || len(got) != 5 {
			t.Errorf("file %d: %d hits, %v", i, len(got), err)
		}
	}
}
