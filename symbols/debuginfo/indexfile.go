package debuginfo

import (
	"encoding/binary"
	"hash/crc32"
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

// indexBytes puts an index into that form.
type indexBytes struct {
	b             []byte
	hash, start   int // where the next ones go
	first, listed int // where list starts, and where its next one goes
}

// newIndexBytes makes room for that many hashes and units listed of them.
func newIndexBytes(hashes, listed int, blind, refs []uint32) *indexBytes {
	le := binary.LittleEndian
	n := indexHead + 4*(hashes+hashes+1+listed)
	b := make([]byte, n, n+4*(len(blind)+len(refs)))
	copy(b, indexMagic)
	le.PutUint32(b[8:], indexVersion)
	for i, n := range [...]int{hashes, listed, len(blind), len(refs)} {
		le.PutUint32(b[24+4*i:], uint32(n))
	}
	for _, v := range blind {
		b = le.AppendUint32(b, v)
	}
	for _, v := range refs {
		b = le.AppendUint32(b, v)
	}
	first := indexHead + 4*(hashes+hashes+1)
	return &indexBytes{b, indexHead, indexHead + 4*hashes, first, first}
}

// add puts the next hash in, in ascending order, with its units.
func (x *indexBytes) add(hash uint32, units []uint32) {
	le := binary.LittleEndian
	le.PutUint32(x.b[x.hash:], hash)
	le.PutUint32(x.b[x.start:], uint32(x.listed-x.first)/4)
	x.hash, x.start = x.hash+4, x.start+4
	for _, u := range units {
		le.PutUint32(x.b[x.listed:], u)
		x.listed += 4
	}
}

// finish gives the bytes, when all is in.
func (x *indexBytes) finish(identity uint64) []byte {
	le := binary.LittleEndian
	le.PutUint32(x.b[x.start:], uint32(x.listed-x.first)/4)
	le.PutUint64(x.b[16:], identity)
	le.PutUint32(x.b[12:], crc32.ChecksumIEEE(x.b[16:]))
	return x.b
}

// readIndex is the index that the bytes hold, which it aliases; nil when they
// are no index of this version of the file with that identity.
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
	var parts [len(counts)]numbers
	rest := b[indexHead:]
	for i, n := range counts {
		parts[i], rest = rest[:4*n], rest[4*n:]
	}
	x := &nameIndex{hashes: parts[0], starts: parts[1], list: parts[2]}
	if !x.hashes.ascending() || !x.starts.ascending() {
		return nil
	}
	x.blind, x.refs = parts[3].slice(0, parts[3].len()), parts[4].slice(0, parts[4].len())
	return x
}
