package fetch

import "math/bits"

// entryWalk records the entries of one map or set, in whatever order they are found.
type entryWalk struct {
	w        *walker
	key, val *Content // val is nil in a set
	left     uint64   // entries that are still to come
	done     int      // entries that are recorded
	depth    int
	why      byte // contentThere, or why there are no more
}

func (g *entryWalk) stop() bool { return g.left == 0 || g.why != contentThere || g.w.full() }

// pair records an entry whose key and value lie there.
func (g *entryWalk) pair(key, val uint64) {
	if g.val != nil {
		g.w.put(contentThere)
	}
	g.w.value(g.key, key, g.depth+1)
	if g.val != nil {
		g.w.value(g.val, val, g.depth+1)
	}
	g.left--
	g.done++
}

// end ends what began at start, of n entries in all.
func (g *entryWalk) end(start int, n uint64) {
	switch {
	case g.why != contentThere:
		g.w.undo(start, g.why)
	case g.left > 0 && !g.w.full():
		g.w.undo(start, contentInvalid)
	default:
		g.w.count(start, g.done, uint64(g.done) < n)
	}
}

// mapWalk goes through one of Go's maps.
type mapWalk struct {
	entryWalk
	m *MapContent
}

// goMap records Go's maps. The map may be changing while it is looked at, by
// another thread: then it may have fewer or other elements than it says.
func (w *walker) goMap(c *Content, at uint64, depth int) {
	p, ok := w.path(Trail{{Op: StepLoad, Size: 8}}, at)
	switch {
	case !ok:
		w.put(contentFault)
		return
	case p == 0:
		w.put(contentNone)
		return
	}
	n, ok := w.total(c, p)
	if !ok {
		return
	}
	start := w.number()
	g := mapWalk{entryWalk{w: w, key: c.Map.KeyElem, val: c.Map.ValElem, left: min(n, uint64(w.elements)), depth: depth}, c.Map}
	if g.left > 0 {
		if c.Map.Swiss {
			g.swiss(p)
		} else {
			g.buckets(p)
		}
	}
	g.end(start, n)
}

// entry records an entry whose key and value, or their addresses, lie there.
func (g *mapWalk) entry(key, val uint64) {
	ok, ok2 := true, true
	far := Trail{{Op: StepLoad, Size: 8}}
	if g.m.KeyFar {
		key, ok = g.w.path(far, key)
	}
	if g.m.ValFar {
		val, ok2 = g.w.path(far, val)
	}
	if !ok || !ok2 {
		g.why = contentFault
		return
	}
	g.pair(key, val)
}

// paths follows several paths from one address.
func (g *mapWalk) paths(at uint64, list ...Trail) (out [3]uint64, ok bool) {
	for i, p := range list {
		if out[i], ok = g.w.path(p, at); !ok {
			g.why = contentFault
			return out, false
		}
	}
	return out, true
}

// swiss goes through the tables of a map's directory, each of which may be there
// several times, in a row.
func (g *mapWalk) swiss(p uint64) {
	v, ok := g.paths(p, g.m.Dir, g.m.DirLen)
	if !ok {
		return
	}
	if v[1] == 0 {
		g.group(v[0])
		return
	}
	before := uint64(0)
	for i := uint64(0); i < v[1] && !g.stop(); i++ {
		t, ok := g.w.path(Trail{{Op: StepLoad, Imm: 8 * i, Size: 8}}, v[0])
		if !ok {
			g.why = contentFault
			return
		}
		if t == before {
			continue
		}
		before = t
		groups, ok := g.paths(t, g.m.Groups, g.m.Mask)
		if !ok {
			return
		}
		for k := uint64(0); k <= groups[1] && !g.stop(); k++ {
			g.group(groups[0] + k*uint64(g.m.GroupSize))
		}
	}
}

func (g *mapWalk) group(at uint64) {
	ctrl, ok := g.w.path(Trail{{Op: StepLoad, Imm: uint64(g.m.Ctrl), Size: 8}}, at)
	if !ok {
		g.why = contentFault
		return
	}
	for full := ^ctrl & 0x8080808080808080; full != 0 && !g.stop(); full &= full - 1 {
		i := int64(bits.TrailingZeros64(full) / 8)
		g.entry(at+uint64(g.m.Key+i*g.m.Stride), at+uint64(g.m.Val+i*g.m.ValStride))
	}
}

// Marks of a bucket's places (runtime/map.go, Go 1.23).
const (
	markMovedFrom = 2 // and 3, 4: the bucket's elements have moved
	markFull      = 5
	sameSizeGrow  = 8 // a flag of the map
)

// buckets goes through the buckets of a map, and through those of before that it
// has still to move.
func (g *mapWalk) buckets(p uint64) {
	v, ok := g.paths(p, g.m.Buckets, g.m.B, g.m.Old)
	if !ok {
		return
	}
	flags, ok := g.paths(p, g.m.Flags)
	if !ok {
		return
	}
	if v[1] > 48 {
		g.why = contentInvalid
		return
	}
	if v[2] != 0 {
		n := uint64(1) << v[1]
		if flags[0]&sameSizeGrow == 0 {
			n >>= 1
		}
		g.array(v[2], n, true)
	}
	if v[0] != 0 {
		g.array(v[0], 1<<v[1], false)
	}
}

func (g *mapWalk) array(at, n uint64, old bool) {
	for i := uint64(0); i < n && !g.stop(); i++ {
		b := at + i*uint64(g.m.BucketSize)
		for b != 0 && !g.stop() {
			tops, ok := g.w.path(Trail{{Op: StepLoad, Imm: uint64(g.m.Tops), Size: 8}}, b)
			if !ok {
				g.why = contentFault
				return
			}
			if first := tops & 0xff; old && first >= markMovedFrom && first < markFull {
				break
			}
			for k := int64(0); k < 8 && !g.stop(); k++ {
				if tops>>(8*k)&0xff >= markFull {
					g.entry(b+uint64(g.m.Key+k*g.m.Stride), b+uint64(g.m.Val+k*g.m.ValStride))
				}
			}
			if b, ok = g.w.path(Trail{{Op: StepLoad, Imm: uint64(g.m.Over), Size: 8}}, b); !ok {
				g.why = contentFault
				return
			}
		}
	}
}
