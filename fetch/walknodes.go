package fetch

import "math/bits"

// element records the i-th element, at an address; it is false when no more may be
// looked at.
func (w *walker) element(c *Content, at uint64, depth int) bool {
	if w.full() {
		return false
	}
	w.value(c.Elem, at, depth+1)
	return true
}

func (w *walker) sequence(c *Content, at uint64, depth int) {
	if c.Word { // a channel
		if p, ok := w.path(Trail{{Op: StepLoad, Size: 8}}, at); ok && p == 0 {
			w.put(contentNone)
			return
		}
	}
	n, ok := w.total(c, at)
	if !ok {
		return
	}
	first, room := uint64(0), uint64(0)
	p := uint64(0)
	if n > 0 {
		if p, ok = w.path(c.Ptr, at); !ok {
			w.put(contentFault)
			return
		}
		if c.Cap != nil {
			if first, ok = w.path(c.First, at); ok {
				room, ok = w.path(c.Cap, at)
			}
			switch {
			case !ok:
				w.put(contentFault)
				return
			case n > room || first > room:
				w.put(contentInvalid)
				return
			}
		}
	}
	start, done := w.number(), uint64(0)
	for ; done < min(n, uint64(w.elements)); done++ {
		i := first + done
		if room > 0 && i >= room {
			i -= room
		}
		if !w.element(c, p+i*uint64(c.Stride), depth) {
			break
		}
	}
	w.count(start, int(done), done < n)
}

// total is the number of elements. If it can't be, it has said so.
func (w *walker) total(c *Content, at uint64) (n uint64, ok bool) {
	if c.Count != nil {
		if n, ok = w.path(c.Count, at); !ok {
			w.put(contentFault)
			return 0, false
		}
	} else {
		if n, ok = w.path(c.Bytes, at); !ok {
			w.put(contentFault)
			return 0, false
		}
		if c.Stride <= 0 || int64(n) < 0 || n%uint64(c.Stride) != 0 {
			w.put(contentInvalid)
			return 0, false
		}
		n /= uint64(c.Stride)
	}
	if int64(n) < 0 {
		w.put(contentInvalid)
		return 0, false
	}
	return n, true
}

// deque records chunks. Cap is how many elements a chunk has, or with a Stride of
// bytes in Bytes how many bytes.
func (w *walker) deque(c *Content, at uint64, depth int) {
	chunk, ok := w.path(c.Cap, at)
	first, ok2 := w.path(c.First, at)
	if !ok || !ok2 {
		w.put(contentFault)
		return
	}
	var n uint64
	if c.Count != nil {
		if n, ok = w.total(c, at); !ok {
			return
		}
	} else { // libstdc++'s: whole chunks between, and what the ends have
		nodes, ok := w.path(c.Bytes, at)
		last, ok2 := w.path(c.End, at)
		stride := uint64(c.Stride)
		if !ok || !ok2 {
			w.put(contentFault)
			return
		}
		if stride == 0 || chunk%stride != 0 || first%stride != 0 || last%stride != 0 || int64(nodes) < 0 || nodes > 1<<40 || nodes%8 != 0 || chunk == 0 || chunk > 1<<32 || first > chunk || last > chunk {
			w.put(contentInvalid)
			return
		}
		chunk, first, last = chunk/stride, first/stride, last/stride
		n = nodes/8*chunk + last - first
		if int64(n) < 0 {
			w.put(contentInvalid)
			return
		}
	}
	if chunk == 0 || chunk > 1<<32 || n > 0 && first > 1<<48 {
		w.put(contentInvalid)
		return
	}
	table, ok := w.path(c.Ptr, at)
	if !ok {
		w.put(contentFault)
		return
	}
	start, done := w.number(), uint64(0)
	for ; done < min(n, uint64(w.elements)); done++ {
		i := first + done
		p, ok := w.path(Trail{{Op: StepLoad, Imm: i / chunk * 8, Size: 8}}, table)
		if !ok {
			w.undo(start, contentFault)
			return
		}
		if !w.element(c, p+i%chunk*uint64(c.Stride), depth) {
			break
		}
	}
	w.count(start, int(done), done < n)
}

// nodes records what step goes through. Where the container tells its number of
// elements, the nodes must be as many.
func (w *walker) nodes(c *Content, at uint64, depth int, step func(node uint64) (next uint64, ok bool)) {
	n, known := uint64(0), c.Count != nil
	if known {
		var ok bool
		if n, ok = w.total(c, at); !ok {
			return
		}
	}
	end, ok := uint64(0), true
	if c.End != nil {
		end, ok = w.path(c.End, at)
	}
	node := uint64(0)
	if ok && (!known || n > 0) {
		node, ok = w.path(c.Ptr, at)
	}
	if !ok {
		w.put(contentFault)
		return
	}
	start, done := w.number(), uint64(0)
	for ; (!known || done < n) && done < uint64(w.elements); done++ {
		if node == end || node == 0 {
			break
		}
		p, ok := w.path(c.At, node)
		if !ok {
			w.undo(start, contentFault)
			return
		}
		if !w.element(c, p, depth) {
			w.count(start, int(done), true)
			return
		}
		if known && done+1 == n || done+1 == uint64(w.elements) && known {
			done++
			break
		}
		if node, ok = step(node); !ok {
			w.undo(start, contentFault)
			return
		}
	}
	switch {
	case known && done < min(n, uint64(w.elements)):
		w.undo(start, contentInvalid)
	case known:
		w.count(start, int(done), done < n)
	default:
		w.count(start, int(done), node != end && node != 0)
	}
}

func (w *walker) list(c *Content, at uint64, depth int) {
	w.nodes(c, at, depth, func(node uint64) (uint64, bool) { return w.path(c.Next, node) })
}

// maxHeight is above that of every balanced tree in memory.
const maxHeight = 2 * 48

// tree goes through a binary tree in order.
func (w *walker) tree(c *Content, at uint64, depth int) {
	w.nodes(c, at, depth, func(node uint64) (uint64, bool) {
		next, ok := w.path(c.Right, node)
		if ok && next != 0 {
			for range maxHeight {
				left, ok := w.path(c.Left, next)
				if !ok || left == 0 {
					return next, ok
				}
				next = left
			}
			return 0, false
		}
		for range maxHeight {
			if !ok {
				return 0, false
			}
			parent, ok2 := w.path(c.Parent, node)
			if !ok2 || parent == 0 {
				return 0, ok2
			}
			right, ok3 := w.path(c.Right, parent)
			if !ok3 {
				return 0, false
			}
			if right != node {
				return parent, true
			}
			node = parent
		}
		return 0, false
	})
}

// hash goes through the control bytes of Rust's hash tables, of which those of
// elements have their highest bit clear; the elements lie before them, backwards.
func (w *walker) hash(c *Content, at uint64, depth int) {
	n, ok := w.total(c, at)
	if !ok {
		return
	}
	ctrl, ok := w.path(c.Ptr, at)
	mask, ok2 := w.path(c.Cap, at)
	if !ok || !ok2 {
		w.put(contentFault)
		return
	}
	if mask&(mask+1) != 0 || n > mask+1 {
		w.put(contentInvalid)
		return
	}
	start, done := w.number(), uint64(0)
	for i := uint64(0); i <= mask && done < min(n, uint64(w.elements)); i += 8 {
		if !w.read(w.buf[:8], ctrl+i) {
			w.undo(start, contentFault)
			return
		}
		full := ^littleEndian(w.buf[:8]) & 0x8080808080808080
		for ; full != 0 && done < min(n, uint64(w.elements)); full &= full - 1 {
			k := i + uint64(bits.TrailingZeros64(full))/8
			if k > mask {
				break
			}
			if !w.element(c, ctrl-(k+1)*uint64(c.Stride), depth) {
				w.count(start, int(done), true)
				return
			}
			done++
		}
		if w.reads <= 0 {
			break
		}
	}
	if done < min(n, uint64(w.elements)) && w.reads > 0 {
		w.undo(start, contentInvalid)
		return
	}
	w.count(start, int(done), done < n)
}

// btree goes through Rust's B-tree in order.
func (w *walker) btree(c *Content, at uint64, depth int) {
	n, ok := w.total(c, at)
	if !ok {
		return
	}
	b := c.BTree
	root, ok := uint64(0), true
	height := uint64(0)
	if n > 0 {
		if root, ok = w.path(c.Ptr, at); ok {
			height, ok = w.path(b.Height, at)
		}
	}
	switch {
	case !ok:
		w.put(contentFault)
		return
	case n > 0 && (root == 0 || height > maxHeight):
		w.put(contentInvalid)
		return
	}
	start := w.number()
	g := btreeWalk{entryWalk{w: w, key: b.Key, val: b.Val, left: min(n, uint64(w.elements)), depth: depth}, b}
	if g.left > 0 {
		g.node(root, height)
	}
	g.end(start, n)
}

type btreeWalk struct {
	entryWalk
	b *BTreeContent
}

func (g *btreeWalk) node(at, height uint64) {
	b, w := g.b, g.w
	n, ok := w.path(b.Len, at)
	switch {
	case !ok:
		g.why = contentFault
		return
	case n > 1<<10 || n == 0:
		g.why = contentInvalid
		return
	}
	for i := uint64(0); i <= n && g.left > 0 && g.why == contentThere; i++ {
		if height > 0 {
			child, ok := w.path(Trail{{Op: StepLoad, Imm: uint64(b.Edges) + 8*i, Size: 8}}, at)
			if !ok || child == 0 {
				g.why = contentFault
				return
			}
			g.node(child, height-1)
		}
		if i == n || g.left == 0 || g.why != contentThere {
			continue
		}
		if w.full() {
			return
		}
		g.pair(at+uint64(b.Keys)+i*uint64(b.KeyStride), at+uint64(b.Vals)+i*uint64(b.ValStride))
	}
}
