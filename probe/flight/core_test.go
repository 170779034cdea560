package flight

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"slices"
	"testing"

	"kprobe/probe/ring"
)

// segment is a part of a core dump.
type segment struct {
	kind        uint32
	off, length uint64
}

// coreOf gives a core dump whose memory is what stands at these offsets.
func coreOf(size int, segs []segment, magicAt ...int) []byte {
	le := binary.LittleEndian
	b := make([]byte, size)
	copy(b, "\x7fELF\x02\x01")
	le.PutUint16(b[16:], typeCore)
	le.PutUint16(b[18:], machineX86)
	le.PutUint64(b[32:], elfHeader)
	le.PutUint16(b[56:], uint16(len(segs)))
	for i, s := range segs {
		p := b[elfHeader+i*progHeader:]
		le.PutUint32(p, s.kind)
		le.PutUint64(p[8:], s.off)
		le.PutUint64(p[32:], s.length)
	}
	for _, at := range magicAt {
		copy(b[at:], ring.Magic)
	}
	return b
}

// TestInCore finds the memory files among a core dump's segments, and no others.
func TestInCore(t *testing.T) {
	const page = ring.PageSize
	const end = 8 * page
	segs := []segment{
		{4, 2 * page, page},                   // a note
		{segLoad, 2 * page, page},             // a memory file
		{segLoad, 3 * page, 2 * page},         // another
		{segLoad, 6 * page, page},             // memory of the program's
		{segLoad, 2 * page, page - 1},         // too small
		{segLoad, 2 * page, end - 2*page + 1}, // beyond the file
		{segLoad, 2 * page, math.MaxUint64},
		{segLoad, math.MaxUint64 - 7, page},
		{segLoad, math.MaxInt64, math.MaxInt64},
		{segLoad, end, 0},
	}
	core := coreOf(end, segs, 2*page, 3*page)
	many := bytes.Clone(core)
	binary.LittleEndian.PutUint16(many[56:], mostSegs)
	binary.LittleEndian.PutUint64(many[40:], 7*page)
	binary.LittleEndian.PutUint32(many[7*page+44:], uint32(len(segs)))
	for _, b := range [][]byte{core, many} {
		files, err := InCore(bytes.NewReader(b), int64(len(b)))
		if err != nil || len(files) != 2 || files[0].Size() != page || files[1].Size() != 2*page {
			t.Fatalf("%d files, %v", len(files), err)
		}
		for i, f := range files {
			all, err := io.ReadAll(f)
			if err != nil || !bytes.Equal(all, b[(2+i)*page:][:f.Size()]) {
				t.Errorf("file %d: %v", i, err)
			}
		}
	}
}

// noted gives the note that lists mapped files: NAME START OFFSET.
func noted(files ...[3]any) []byte {
	le := binary.LittleEndian
	desc := le.AppendUint64(nil, uint64(len(files)))
	desc = le.AppendUint64(desc, ring.PageSize)
	var names []byte
	for _, f := range files {
		start := uint64(f[1].(int))
		desc = le.AppendUint64(le.AppendUint64(le.AppendUint64(desc, start), start+ring.PageSize), uint64(f[2].(int)))
		names = append(append(names, f[0].(string)...), 0)
	}
	desc = append(desc, names...)
	note := le.AppendUint32(le.AppendUint32(le.AppendUint32(nil, 5), uint32(len(desc))), noteFile)
	note = append(append(note, "CORE\x00\x00\x00\x00"...), desc...)
	return append(note, make([]byte, -len(note)&3)...)
}

// TestFilesInCore lists the files that were mapped from their beginning, with what the dump has of them, and none where the
// list is not what it says.
func TestFilesInCore(t *testing.T) {
	le := binary.LittleEndian
	other := append(le.AppendUint32(le.AppendUint32(le.AppendUint32(nil, 5), 3), 1), "CORE\x00\x00\x00\x00abc\x00"...)
	const memory = "/memfd:kprobe (deleted)"
	list := noted([3]any{"/lib/one", 0x1000, 0}, [3]any{"/lib/one", 0x2000, 1}, [3]any{memory, 0x5000, 0}, [3]any{memory, 0x6000, 0},
		[3]any{"/dev/shm/head", 0x7000, 0}, [3]any{"/dev/shm/none", 0x8000, 0})
	notes := append(bytes.Clone(other), list...)
	const size = 8192
	core := func(notes []byte, length int) []byte {
		segs := []segment{
			{segLoad, 0, 64}, {segNote, 2048, uint64(length)},
			{segLoad, 4096, 4096}, {segLoad, 8191, 4096}, {segLoad, 4096, 64}, {segLoad, 4096, 0},
		}
		b := coreOf(size, segs)
		for i := range 4 {
			p := b[elfHeader+(2+i)*progHeader:]
			le.PutUint32(p[4:], uint32(mayWrite*(i&1)))
			le.PutUint64(p[16:], uint64(0x5000+0x1000*i))
		}
		copy(b[2048:], notes)
		return b
	}
	b := core(notes, len(notes))
	want := []CoreFile{
		{Name: "/lib/one", Start: 0x1000, Size: 4096, Write: true}, {Name: memory, Start: 0x5000, Size: 4096, Part: Whole}, {Name: memory, Start: 0x6000, Size: 4096, Part: Cut, Write: true},
		{Name: "/dev/shm/head", Start: 0x7000, Size: 4096}, {Name: "/dev/shm/none", Start: 0x8000, Size: 4096, Write: true},
	}
	if got := FilesInCore(bytes.NewReader(b), size); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if !want[1].IsMemoryFile() || want[3].IsMemoryFile() {
		t.Error("other files are memory files")
	}
	if !CutOff(bytes.NewReader(b), size) || CutOff(bytes.NewReader(b), size+4095) || CutOff(bytes.NewReader(notes), size) {
		t.Error("it ends elsewhere")
	}
	for n := range len(notes) {
		if got := FilesInCore(bytes.NewReader(core(notes[:n], n)), size); len(got) > 0 {
			t.Errorf("%d bytes of it: %v", n, got)
		}
	}
	head := len(other) + noteHead + 8
	for n, most := range map[uint64]int{7: 5, 1 << 20: 0, math.MaxUint64: 0} {
		bad := bytes.Clone(notes)
		le.PutUint64(bad[head:], n)
		if got := FilesInCore(bytes.NewReader(core(bad, len(bad))), size); len(got) > most {
			t.Errorf("%d files: %v", n, got)
		}
	}
}

// TestForgedCores: what isn't a core dump, or says of itself what can't be.
func TestForgedCores(t *testing.T) {
	good := coreOf(4096, []segment{{segLoad, 0, 4096}})
	set := func(at int, v byte) []byte {
		b := bytes.Clone(good)
		b[at] = v
		return b
	}
	le := binary.LittleEndian
	word := func(at int, v uint64) []byte {
		b := bytes.Clone(good)
		le.PutUint64(b[at:], v)
		return b
	}
	manyOf := func(n uint32, section uint64) []byte {
		b := word(40, section)
		le.PutUint16(b[56:], mostSegs)
		if section+48 <= uint64(len(b)) {
			le.PutUint32(b[section+44:], n)
		}
		return b
	}
	for name, b := range map[string][]byte{
		"nothing": nil, "a head's part": good[:63], "another magic": set(1, 'X'), "of 32 bits": set(4, 1), "a program": set(16, 2),
		"of another processor": set(18, 3), "headers before it": word(32, math.MaxUint64), "headers behind it": word(32, 4096),
		"headers cut off": word(32, 4096-55), "more headers than there are": manyOf(1<<20, 1024), "far more": manyOf(math.MaxUint32, 1024),
	} {
		if files, err := InCore(bytes.NewReader(b), int64(len(b))); !errors.Is(err, ErrNotCore) || files != nil {
			t.Errorf("%s: %d files, %v", name, len(files), err)
		}
	}
	for _, at := range []uint64{4096, math.MaxInt64, math.MaxUint64} {
		if _, err := InCore(bytes.NewReader(manyOf(1, at)), 4096); err == nil {
			t.Errorf("sections at %#x", at)
		}
	}
}

// FuzzInCore has a file say anything: what is found lies in it.
func FuzzInCore(f *testing.F) {
	f.Add(coreOf(12288, []segment{{segLoad, 4096, 4096}, {segLoad, 8192, 4096}}, 4096))
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = FilesInCore(bytes.NewReader(b), int64(len(b)))
		files, err := InCore(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		for _, s := range files {
			if all, err := io.ReadAll(s); err != nil || int64(len(all)) != s.Size() || s.Size() > int64(len(b)) {
				t.Errorf("%d bytes of %d, %v", len(all), s.Size(), err)
			}
		}
	})
}
