package debuginfo

import (
	"encoding/binary"
	"hash/crc32"
	"slices"
)

// IndexStore keeps the index of one file between programs. What it gives back
// is not trusted.
type IndexStore interface {
	// Load gives what was saved, which must not change while the Data lives;
	// nil is nothing.
	Load() []byte
	// Save keeps an index, or doesn't: that costs time only.
	Save([]byte)
}

// The index as bytes, little-endian: magic, version, checksum of what follows,
// identity, four counts, then as many numbers of 32 bits: hashes, starts (one
// more), list, blind, refs.
const (
	indexMagic   = "kprobeix"
	indexVersion = 1
	indexHead    = 8 + 4 + 4 + 8 + 4*4
)

func (x *nameIndex) bytes(identity uint64) []byte {
	le := binary.LittleEndian
	lists := [...][]uint32{x.hashes, x.starts, x.list, x.blind, x.refs}
	n := indexHead
	for _, l := range lists {
		n += 4 * len(l)
	}
	b := make([]byte, 0, n)
	b = append(b, indexMagic...)
	b = le.AppendUint32(b, indexVersion)
	b = le.AppendUint32(b, 0)
	b = le.AppendUint64(b, identity)
	for _, i := range [...]int{0, 2, 3, 4} {
		b = le.AppendUint32(b, uint32(len(lists[i])))
	}
	for _, l := range lists {
		for _, v := range l {
			b = le.AppendUint32(b, v)
		}
	}
	le.PutUint32(b[12:], crc32.ChecksumIEEE(b[16:]))
	return b
}

// readIndex is the index that the bytes hold; nil when they are no index of
// this version of the file with that identity.
func readIndex(b []byte, identity uint64) *nameIndex {
	le := binary.LittleEndian
	if len(b) < indexHead || string(b[:8]) != indexMagic || le.Uint32(b[8:]) != indexVersion ||
		le.Uint64(b[16:]) != identity || le.Uint32(b[12:]) != crc32.ChecksumIEEE(b[16:]) {
		return nil
	}
	counts := [...]uint64{uint64(le.Uint32(b[24:])), 0, uint64(le.Uint32(b[28:])), uint64(le.Uint32(b[32:])), uint64(le.Uint32(b[36:]))}
	counts[1] = counts[0] + 1
	total := uint64(0)
	for _, n := range counts {
		total += n
	}
	if total*4 != uint64(len(b)-indexHead) {
		return nil
	}
	x := &nameIndex{}
	rest := b[indexHead:]
	for i, to := range [...]*[]uint32{&x.hashes, &x.starts, &x.list, &x.blind, &x.refs} {
		*to = make([]uint32, counts[i])
		for j := range *to {
			(*to)[j] = le.Uint32(rest[4*j:])
		}
		rest = rest[4*counts[i]:]
	}
	if !slices.IsSorted(x.hashes) || !slices.IsSorted(x.starts) {
		return nil
	}
	return x
}
