package recording

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"slices"
	"testing"

	"kprobe/probe/results"
	"kprobe/probe/ring"
)

// asShort makes a recording of version 2 of one whose records aren't compressed: the state words of its
// records are those of memory files of versions up to 8.
func asShort(t *testing.T, file []byte) []byte {
	t.Helper()
	le := binary.LittleEndian
	out := slices.Clone(file)
	le.PutUint32(out[len(Magic):], short)
	records := 0
	for b := out[len(Magic)+4:]; len(b) > 0; {
		block := b[:blockHead+int(le.Uint32(b[4:]))]
		b = b[len(block):]
		if block[0] != 'R' {
			continue
		}
		for parts := block[blockHead+24:]; len(parts) > 0; {
			n := int(le.Uint32(parts[8:]))
			for list := parts[12 : 12+n]; len(list) > 0; {
				id, units, committed := ring.SplitState(le.Uint32(list))
				if units == 0 || !committed {
					t.Fatalf("%x is no record", list)
				}
				le.PutUint32(list, id|uint32(units)<<19|1<<31)
				list = list[units*ring.Unit:]
				records++
			}
			parts = parts[12+n:]
		}
		le.PutUint32(block[8:], crc32.Update(crc32.Checksum(block[:8], castagnoli), castagnoli, block[blockHead:]))
	}
	if records == 0 {
		t.Fatal("there are no records")
	}
	return out
}

// TestVersionTwo reads a recording of version 2 from its beginning to its end: records of several rings,
// room without a record, and one that is so long that version 3 has its length otherwise.
func TestVersionTwo(t *testing.T) {
	long := make([]byte, 16<<10)
	file := kept(t, false, func(r *Recorder, s *source, k results.RecordKeeper, now uint64) {
		s.define(t, 1, "p:in work a=%di:u64", 0x1000)
		s.define(t, 7, "r:out work v=$retval:s32", 0x1000)
		take(t, k, 0, record(1, 5, now+10, words(1)), record(7, 5, now+50, words(2, 0x2005)))
		take(t, k, 1, record(1, 6, now+20, words(2)), binary.LittleEndian.AppendUint64(nil, uint64(ring.SkipWord(1))),
			record(1, 6, now+60, append(words(3), long...)))
	})
	want, times, _, err := hits(file)
	if err != io.EOF || len(want) != 4 {
		t.Fatalf("%d hits, %v", len(want), err)
	}
	list, oldTimes, r, err := hits(asShort(t, file))
	if err != io.EOF || r.End == nil || r.End.Hits != 4 {
		t.Fatalf("it ends with %v, %+v", err, r.End)
	}
	if !slices.Equal(list, want) || !slices.Equal(oldTimes, times) {
		t.Errorf("got %q at %d, want %q at %d", list, oldTimes, want, times)
	}
}
