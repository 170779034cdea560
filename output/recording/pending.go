package recording

import (
	"encoding/binary"
	"slices"

	"kprobe/probe/ring"
)

// Reading records
//
// Records of several rings come in parts that are nearly in order each. What is read is
// brought into one order and waits until a block says that nothing older follows.

// mostPending bounds the bytes of records that wait. A writer leaves what comes within a
// tenth of a second.
const mostPending = 128 << 20

// records takes a block of records.
func (o *Reader) records(b []byte) bool {
	r := &o.rec
	if len(b) < rawHead {
		return false
	}
	le := binary.LittleEndian
	now := ring.Sample{TSC: le.Uint64(b), NS: int64(le.Uint64(b[8:]))}
	until := le.Uint64(b[16:])
	if r.head > 0 || len(r.queue) == 0 {
		r.keep()
	}
	for b = b[rawHead:]; len(b) > 0; {
		if len(b) < partHead {
			return false
		}
		n, cpu, size := le.Uint32(b), le.Uint32(b[4:]), le.Uint32(b[8:])
		b = b[partHead:]
		if int64(n) >= int64(len(r.processes)) || cpu > 1<<16-1 || int64(size) > int64(len(b)) || size == 0 {
			return false
		}
		if !r.part(r.processes[n], uint16(cpu), b[:size]) {
			return false
		}
		b = b[size:]
	}
	if len(r.buf) > mostPending {
		until = ^uint64(0)
	}
	ok := r.calibrate(now)
	if until > r.until { // else all that is new waits, too
		r.until = until
		r.order()
	}
	return ok
}

// keep makes room for a block behind the records that wait. They are in order.
func (r *rawReader) keep() {
	if slices.ContainsFunc(r.lanes, func(ln *lane) bool { return len(ln.q) > 0 }) {
		return // of blocks before, which nothing was given of
	}
	r.begin = append(r.begin[:0], 0)
	left := r.queue[r.head:]
	if len(left) == 0 {
		// It may have been drained, before more came.
		r.buf, r.queue, r.head, r.until = r.buf[:0], r.queue[:0], 0, 0
		return
	}
	// They are moved to the front, in their order.
	buf, list := r.other[:0], r.spare[:0]
	for _, e := range left {
		at := len(buf)
		buf = append(buf, r.buf[e.at:int(e.at)+int(e.n)]...)
		e.at = uint32(at)
		list = append(list, e)
	}
	r.buf, r.other = buf, r.buf
	r.queue, r.spare, r.head = list, r.queue, 0
}

// part takes records of one ring.
func (r *rawReader) part(p *process, cpu uint16, b []byte) bool {
	ln := p.lanes[cpu]
	if ln == nil {
		ln = &lane{}
		p.lanes[cpu] = ln
		r.lanes = append(r.lanes, ln)
		r.memory += 128
	}
	last, thread, tid := uint64(0), uint32(0), uint64(noThread)
	if n := len(ln.q); n > 0 {
		last = ln.q[n-1].tsc
	}
	for len(b) > 0 {
		x, rest, ok := r.split(b)
		if !ok {
			return false
		}
		b = rest
		if x.ID == 0 {
			continue
		}
		if int64(x.ID) >= int64(len(p.probes)) || p.probes[x.ID] == 0 {
			return false
		}
		if uint64(x.TID) != tid {
			var known bool
			if thread, known = p.threads[x.TID]; !known {
				thread = r.own(p, x.TID, &Thread{PID: p.pid, TID: int(x.TID & (1<<31 - 1)), Comm: "<...>"})
			}
			tid = uint64(x.TID)
		}
		if x.TSC < last {
			ln.begin = append(ln.begin, len(ln.q))
		}
		last = x.TSC
		ln.q = append(ln.q, entry{x.TSC, uint32(len(r.buf)), uint16(len(x.Data)), cpu, p.probes[x.ID] - 1, thread})
		r.buf = append(r.buf, x.Data...)
	}
	return true
}

// order brings the records of all lanes into one order.
func (r *rawReader) order() {
	for _, ln := range r.lanes {
		if len(ln.q) == 0 {
			continue
		}
		at := len(r.queue)
		if at > 0 && ln.q[0].tsc < r.queue[at-1].tsc {
			r.begin = append(r.begin, at)
		}
		for _, n := range ln.begin {
			r.begin = append(r.begin, at+n)
		}
		r.queue = append(r.queue, ln.q...)
		ln.q, ln.begin = ln.q[:0], ln.begin[:0]
	}
	for len(r.begin) > 1 {
		r.mergeRuns()
	}
}

// mergeRuns merges what is in order with what follows it, two by two.
func (r *rawReader) mergeRuns() {
	out, all := r.spare[:0], r.begin
	end := func(i int) int {
		if i < len(all) {
			return all[i]
		}
		return len(r.queue)
	}
	n := 0
	for i := 0; i < len(all); i += 2 {
		a, b := r.queue[all[i]:end(i+1)], r.queue[end(i+1):end(i+2)]
		all[n] = len(out)
		n++
		for len(a) > 0 && len(b) > 0 {
			if b[0].tsc < a[0].tsc {
				out, b = append(out, b[0]), b[1:]
			} else {
				out, a = append(out, a[0]), a[1:]
			}
		}
		out = append(append(out, a...), b...)
	}
	r.spare, r.queue, r.begin = r.queue, out, all[:n]
}

// calibrate takes a moment on both clocks into account.
func (r *rawReader) calibrate(now ring.Sample) bool {
	if r.cal == nil {
		var ok bool
		r.cal, ok = ring.Calibrate(r.first, now)
		r.next = now.NS + 10*ring.MinSpan
		r.line = now.TSC
		return ok
	}
	if now.NS < r.next || r.oldest() < r.line {
		return true
	}
	r.cal.Update(now)
	r.line = now.TSC
	r.next = now.NS + min(max(now.NS-r.first.NS, 10*ring.MinSpan), 1e9)
	return true
}

// oldest is the least time stamp of what waits, as far as that is in order.
func (r *rawReader) oldest() uint64 {
	t := ^uint64(0)
	if r.head < len(r.queue) {
		t = r.queue[r.head].tsc
	}
	for _, ln := range r.lanes {
		if len(ln.q) > 0 {
			t = min(t, ln.q[0].tsc)
		}
	}
	return t
}

// ready reports whether there is a record that nothing older follows.
func (r *rawReader) ready() bool { return r.head < len(r.queue) && r.queue[r.head].tsc < r.until }

// drain has all that waits be ready: records of later blocks are later.
func (r *rawReader) drain() {
	r.until = ^uint64(0)
	r.order()
}
