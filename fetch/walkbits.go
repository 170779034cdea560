package fetch

// bits records bits, each as a byte.
func (w *walker) bits(c *Content, at uint64) {
	p, ok := w.path(c.Ptr, at)
	n, first := uint64(0), uint64(0)
	if c.Count != nil {
		ok2 := false
		n, ok2 = w.path(c.Count, at)
		ok = ok && ok2
	} else {
		bytes, ok2 := w.path(c.Bytes, at)
		last, ok3 := w.path(c.Cap, at)
		start, ok4 := w.path(c.First, at)
		ok = ok && ok2 && ok3 && ok4
		if n, first = bytes*8+last-start, start; start > 63 || last > 63 || bytes > 1<<60 {
			n = 1 << 63
		}
	}
	switch {
	case !ok:
		w.put(contentFault)
		return
	case n > 1<<62:
		w.put(contentInvalid)
		return
	}
	shown := min(n, uint64(w.elements))
	start := w.number()
	for i := first; i < first+shown; i++ {
		if !w.read(w.buf[:1], p+i/8) {
			w.undo(start, contentFault)
			return
		}
		w.put(contentThere, w.buf[0]>>(i%8)&1)
	}
	w.count(start, int(shown), shown < n)
}

// there reports whether what a pointer leads to still is.
func (w *walker) there(c *Content, at uint64) bool {
	n, ok := w.path(c.Tag, at)
	return ok && n != 0
}
