package memory

import (
	"encoding/binary"
	"unicode/utf8"
)

// What the header's page says of whether a session lets go of its process (--let-go), from
// HeaderTraced on:
//
//	+0  u32 a Traced, bits 0-7, and the length of the text, from bit 8 on; stored last
//	+4  the text: why the process is traced

// Traced is whether a session traces its process.
type Traced byte

// Where a session doesn't say it is TracedAlways.
const (
	TracedAlways Traced = iota // as long as the session lasts
	TracedNot                  // while nothing changes
	TracedFor                  // for a reason
)

// TracedSize is how many bytes it takes.
const TracedSize = 256

// StoreTraced says it in a session's memory file. A text that is too long is cut.
func StoreTraced(f *File, x Traced, why string) {
	for len(why) > TracedSize-4 {
		_, n := utf8.DecodeLastRuneInString(why)
		why = why[:len(why)-n]
	}
	at := f.Layout.Header.Off + HeaderTraced
	f.Store32(at, uint32(TracedAlways))
	copy(f.Mem[at+4:at+TracedSize], why)
	f.Store32(at, uint32(x)|uint32(len(why))<<8)
}

// LoadTraced reads what StoreTraced has written, of TracedSize bytes at HeaderTraced. The
// text is the session's, or anything.
func LoadTraced(b []byte) (x Traced, why string) {
	if len(b) < 4 {
		return TracedAlways, ""
	}
	w := binary.LittleEndian.Uint32(b)
	if x = Traced(w); x > TracedFor {
		return TracedAlways, ""
	}
	return x, string(b[4:min(4+int(w>>8), len(b))])
}
