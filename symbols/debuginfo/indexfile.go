package debuginfo

import (
	"encoding/binary"
	"hash/crc32"
)

// IndexStore keeps the index of one file from one run to the next. What it returns is not
// trusted.
type IndexStore interface {
	// Load returns what was saved, or nil. The bytes must not change while the Data lives.
	Load() []byte
	// Save keeps an index. It need not succeed; a failure costs only time.
	Save([]byte)
}

// The index as bytes, little-endian: magic, version, checksum of what follows,
// identity, how many numbers of 32 bits each part has, then the parts. Numbers
// of 64 bits are two, the lower half first.
const (
	indexMagic   = "kprobeix"
	indexVersion = 2
	indexHead    = 8 + 4 + 4 + 8 + 4*indexPartsN
)

// The parts, in order. Of the names of functions and of the others: hashes,
// where the cells of each start in the list and where those of the last end,
// and the list.
const (
	partFuncHashes = iota
	partFuncStarts
	partFuncList
	partOtherHashes
	partOtherStarts
	partOtherList
	partCells // for each cell: where to start, and the entry around that
	partFuncs // code of functions: start, end, entry
	partUnits // code of units: start, end, unit
	partLinks // the unit that refers, the unit referred to; sorted by the latter
	partBlind // positions of units
	indexPartsN
)

// indexParts are the parts of an index.
type indexParts struct {
	names        [2][][]uint64 // pairs of workers: functions, others
	cells        []cellStart
	funcs, units []span
	links        []uint64 // as crossRefs has them
	blind        []uint32
}

// bytes returns an index in the form in which files have it.
func (x *indexParts) bytes(identity uint64) []byte {
	var n [indexPartsN]int
	for i, lists := range x.names { // once to count, once to write
		n[3*i+1] = 1
		merge(lists, func(_ uint32, cells []uint32) {
			n[3*i]++
			n[3*i+1]++
			n[3*i+2] += len(cells)
		})
	}
	n[partCells], n[partFuncs], n[partUnits] = 4*len(x.cells), 6*len(x.funcs), 6*len(x.units)
	n[partLinks], n[partBlind] = 2*len(x.links), len(x.blind)
	size := indexHead
	for _, k := range n {
		size += 4 * k
	}
	le := binary.LittleEndian
	b := make([]byte, size)
	copy(b, indexMagic)
	le.PutUint32(b[8:], indexVersion)
	le.PutUint64(b[16:], identity)
	var part [indexPartsN][]byte
	at := indexHead
	for i, k := range n {
		le.PutUint32(b[24+4*i:], uint32(k))
		part[i] = b[at : at+4*k]
		at += 4 * k
	}
	put := func(i int, v uint32) {
		le.PutUint32(part[i], v)
		part[i] = part[i][4:]
	}
	put64 := func(i int, list ...uint64) {
		for _, v := range list {
			put(i, uint32(v))
			put(i, uint32(v>>32))
		}
	}
	for i, lists := range x.names {
		listed := 0
		merge(lists, func(hash uint32, cells []uint32) {
			put(3*i, hash)
			put(3*i+1, uint32(listed))
			for _, c := range cells {
				put(3*i+2, c)
			}
			listed += len(cells)
		})
		put(3*i+1, uint32(listed))
	}
	for _, c := range x.cells {
		put64(partCells, c.at, c.parent)
	}
	for _, s := range x.funcs {
		put64(partFuncs, s.Low, s.High, s.off)
	}
	for _, s := range x.units {
		put64(partUnits, s.Low, s.High, s.off)
	}
	put64(partLinks, x.links...)
	for _, v := range x.blind {
		put(partBlind, v)
	}
	le.PutUint32(b[12:], crc32.ChecksumIEEE(b[16:]))
	return b
}

// readIndex returns the index that the bytes hold, which it aliases. It returns nil if they
// aren't an index of this version, of the file with that identity.
func readIndex(b []byte, identity uint64) *nameIndex {
	le := binary.LittleEndian
	if len(b) < indexHead || string(b[:8]) != indexMagic || le.Uint32(b[8:]) != indexVersion ||
		le.Uint64(b[16:]) != identity || le.Uint32(b[12:]) != crc32.ChecksumIEEE(b[16:]) {
		return nil
	}
	rest := b[indexHead:]
	var part [indexPartsN]numbers
	for i := range part {
		n := 4 * uint64(le.Uint32(b[24+4*i:]))
		if n > uint64(len(rest)) {
			return nil
		}
		part[i], rest = numbers(rest[:n]), rest[n:]
	}
	if len(rest) != 0 {
		return nil
	}
	return &nameIndex{
		names: [2]hashTable{{part[0], part[1], part[2]}, {part[3], part[4], part[5]}},
		cells: part[partCells], funcs: part[partFuncs], units: part[partUnits],
		links: part[partLinks], blind: part[partBlind].slice(0, part[partBlind].len()),
	}
}
