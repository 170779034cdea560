package debuginfo

import "sync"

// pairs collects names: each is a key in the upper half and a cell in the lower half, appended
// in the order of the file. Pairs are sorted when there are many, which costs less than
// looking up each in a table that fits in no cache.
type pairs struct {
	list   []uint64
	sorted int // how many at the front are sorted and without repeats
	limit  int // when to sort next
	room   *sortRoom

	recent [1 << recentBits]uint64 // pairs that were added recently
}

const recentBits = 13

// firstSort is how many pairs are gathered before they are sorted: 16 MB.
const firstSort = 2 << 20

// add notes that a cell has a key.
func (p *pairs) add(key, cell uint32) {
	v := uint64(key)<<32 | uint64(cell)
	// The multiplicative hash of Knuth's TAOCP 6.4.
	slot := &p.recent[key*0x9e3779b1>>(32-recentBits)]
	if *slot == v+1 { // 0 is none
		return
	}
	*slot = v + 1
	p.list = append(p.list, v)
	if len(p.list) >= max(p.limit, firstSort) {
		p.sort()
		p.limit = 2 * len(p.list)
	}
}

// sort sorts by key and cell and drops repeats. For each key it keeps one cell more than are
// listed, which is enough to know that there are too many.
func (p *pairs) sort() []uint64 {
	if p.sorted == len(p.list) {
		return p.list
	}
	p.room.sort(p.list)
	out := p.list[:0]
	last, run := ^uint64(0), 0
	for _, v := range p.list {
		switch {
		case v == last:
			continue
		case v>>32 != last>>32 || len(out) == 0:
			run = 0
		}
		last = v
		if run++; run <= maxListed+1 {
			out = append(out, v)
		}
	}
	p.list, p.sorted = out, len(out)
	return out
}

// sortRoom is memory in which several workers sort, one after another.
type sortRoom struct {
	mu   sync.Mutex
	room []uint64
}

// sort is a radix sort by the key. It is stable, and each key's cells were added
// in ascending order.
func (r *sortRoom) sort(list []uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if cap(r.room) < len(list) {
		r.room = make([]uint64, len(list)+len(list)/8)
	}
	from, to := list, r.room[:len(list)]
	for shift := 32; shift < 64; shift += 8 { // an even number of passes: it ends in list
		var at [256]int
		for _, v := range from {
			at[uint8(v>>shift)]++
		}
		sum := 0
		for i, n := range at {
			at[i], sum = sum, sum+n
		}
		for _, v := range from {
			to[at[uint8(v>>shift)]] = v
			at[uint8(v>>shift)]++
		}
		from, to = to, from
	}
}
