package order

import (
	"fmt"
	"testing"

	"kprobe/probe/results"
)

// BenchmarkOrder has the readers of so many processes give hits, a hundred of each in turn,
// which wait until all have come as far.
func BenchmarkOrder(b *testing.B) {
	const each = 100
	for _, n := range []int{2, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			o := &Order[int]{}
			streams := make([]*Stream, n)
			for i := range streams {
				streams[i] = &Stream{}
				o.Join(streams[i])
			}
			h := results.Hit{Data: make([]byte, 16)}
			for i := 0; i < b.N; i++ {
				s := i / each % n
				h.Time = uint64(i/(each*n)*each*n + i%each*n + s) // those of all are mixed
				o.Put(streams[s], 0, &h, h.Time)
				if (i+1)%(each*n) != 0 {
					continue
				}
				for _, s := range streams {
					s.Until(uint64(i + 1))
				}
				for q := o.Next(false); q != nil; q = o.Next(false) {
					o.Done(q)
				}
				o.TellOldest()
			}
		})
	}
}
