package ring

import (
	"context"
	"syscall"
	"testing"
	"time"
)

// One core's reading: records of two arguments, merged over the CPUs.
func BenchmarkRead(b *testing.B) {
	for _, cpus := range []int{1, 2, 8} {
		b.Run(map[int]string{1: "1cpu", 2: "2cpus", 8: "8cpus"}[cpus], func(b *testing.B) {
			l, err := New(Params{CPUs: cpus})
			if err != nil {
				b.Fatal(err)
			}
			file := make([]byte, l.Code.Off)
			p, err := NewProducer(file, l)
			if err != nil {
				b.Fatal(err)
			}
			r, err := NewReader(file, l, Options{})
			if err != nil {
				b.Fatal(err)
			}
			data := make([]byte, 24)
			var sum uint64
			emit := func(rec *Record) error { sum += rec.TSC; return nil }
			time.Sleep(2 * MinSpan)
			r.Poll(emit)
			b.ReportAllocs()
			b.ResetTimer()
			for left := b.N; left > 0; {
				b.StopTimer()
				n := min(left, 20000)
				for i := range n {
					p.Record(i%cpus, 1+uint32(i%50), 7, SystemClock{}.TSC(), data)
				}
				left -= n
				b.StartTimer()
				if _, err := r.Poll(emit); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// What an idle reader costs: percent of a core.
func BenchmarkIdle(b *testing.B) {
	l, err := New(Params{CPUs: 2})
	if err != nil {
		b.Fatal(err)
	}
	r, err := NewReader(make([]byte, l.Code.Off), l, Options{})
	if err != nil {
		b.Fatal(err)
	}
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	const long = 4 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	before := used()
	r.Run(ctx, func(*Record) error { return nil })
	b.ReportMetric(100*float64(used()-before)/float64(long), "%core")
	b.ReportMetric(0, "ns/op")
}

func BenchmarkProduce(b *testing.B) {
	l, err := New(Params{CPUs: 1})
	if err != nil {
		b.Fatal(err)
	}
	p, err := NewProducer(make([]byte, l.Code.Off), l)
	if err != nil {
		b.Fatal(err)
	}
	head, tail := l.Area(0)+HeadOff, l.Area(0)+TailOff
	data := make([]byte, 16)
	for b.Loop() {
		p.m.store64(tail, p.m.load64(head))
		p.Record(0, 1, 1, SystemClock{}.TSC(), data)
	}
}

// A full ring of stacks, read to its end: as in a session that records them, when
// they come faster than they are read.
func BenchmarkReadFull(b *testing.B) {
	l, err := New(Params{CPUs: 1, RingSize: 32 << 20})
	if err != nil {
		b.Fatal(err)
	}
	file := make([]byte, l.Code.Off)
	p, err := NewProducer(file, l)
	if err != nil {
		b.Fatal(err)
	}
	r, err := NewReader(file, l, Options{})
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	emit := func(*Record) error { n++; return nil }
	time.Sleep(2 * MinSpan)
	r.Poll(emit)
	data := make([]byte, 3<<10)
	b.ResetTimer()
	records := 0
	for range b.N {
		b.StopTimer()
		n = 0
		full := 0
		for ok := true; ok; full++ {
			ok, _ = p.Record(0, 1, 7, SystemClock{}.TSC(), data)
		}
		records += full - 1
		b.StartTimer()
		for n < full-1 {
			if _, err := r.Poll(emit); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(records), "ns/record")
}
