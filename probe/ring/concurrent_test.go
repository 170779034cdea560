package ring

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"time"
)

// Many writers on few CPUs, one reader: every hit is a record, was filtered or
// is lost, and each thread's records come in order.
func TestHitsAreConserved(t *testing.T) {
	const cpus, threads, each = 2, 8, 30000
	l, b := small(t, cpus)
	p, err := NewProducer(b, l)
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewReader(b, l, Options{MaxSleep: 100 * time.Microsecond, Lateness: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	seen := make([]uint64, threads+1)
	last := make([]uint64, threads+1)
	emit := func(rec *Record) error {
		n := binary.LittleEndian.Uint64(rec.Data)
		if rec.ID != rec.TID || rec.ID == 0 || rec.ID > threads {
			t.Errorf("record %+v", rec)
		}
		for i := 8; i < len(rec.Data); i++ {
			if rec.Data[i] != byte(n) {
				t.Errorf("record of thread %d holds another's data", rec.TID)
				break
			}
		}
		if n <= last[rec.TID] {
			t.Errorf("thread %d: %d after %d", rec.TID, n, last[rec.TID])
		}
		last[rec.TID] = n
		seen[rec.TID]++
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- r.Run(ctx, emit) }()
	var wg sync.WaitGroup
	for id := uint32(1); id <= threads; id++ {
		wg.Go(func() {
			for n := uint64(1); n <= each; n++ {
				cpu := int(n) % cpus // a thread that is moved about
				if n%10 == 0 {
					p.Count(cpu, id, CounterFiltered, 1)
					continue
				}
				data := make([]byte, 8+n%5*8)
				for i := range data {
					data[i] = byte(n)
				}
				binary.LittleEndian.PutUint64(data, n)
				if _, err := p.Record(cpu, id, id, SystemClock{}.TSC(), data); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := r.Finish(emit); err != nil {
		t.Fatal(err)
	}
	c, err := NewCounters(b, l)
	if err != nil {
		t.Fatal(err)
	}
	var lost uint64
	for id := uint32(1); id <= threads; id++ {
		n := c.Probe(id)
		if n.Hits != each || n.Filtered != each/10 || n.Recorded != seen[id] || n.Pending() != 0 ||
			n.Hits != n.Recorded+n.Filtered+n.Lost {
			t.Errorf("probe %d: %+v, seen %d", id, n, seen[id])
		}
		lost += n.Lost
	}
	s := r.Stats()
	if s.Corrupt != 0 || s.Abandoned != 0 {
		t.Errorf("stats %+v", s)
	}
	t.Logf("%d records, %d lost, %d late", s.Records, lost, s.Late)
}

func TestPace(t *testing.T) {
	const room = 2 << 20
	for _, tt := range []struct {
		name  string
		bytes uint64
		took  time.Duration
		want  time.Duration
	}{
		{"idle", 0, time.Millisecond, 5 * time.Millisecond},
		{"a trickle", 40, 5 * time.Millisecond, 5 * time.Millisecond},
		{"an eighth in a look", room / 8, time.Millisecond, time.Millisecond},
		{"behind", room / 4, time.Millisecond, 0},
		{"10 M records/s", 400_000, time.Millisecond, 655 * time.Microsecond},
		{"a burst in no time", room / 8, 1, shortest},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := pace{room: room, longest: 5 * time.Millisecond, last: time.Second}
			if got := p.next(tt.bytes, time.Second+tt.took).Truncate(time.Microsecond); got != tt.want {
				t.Errorf("sleeps %v, want %v", got, tt.want)
			}
		})
	}
}

func TestRunEndsOnEmitError(t *testing.T) {
	x := newBench(t, 1, Options{Clock: SystemClock{}})
	x.put(t, 0, 1, 1, SystemClock{}.TSC(), "")
	stop := errors.New("enough")
	if err := x.r.Run(context.Background(), func(*Record) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
}

func TestPaceStretchesWhenIdle(t *testing.T) {
	p := pace{room: 2 << 20, longest: 5 * time.Millisecond}
	for range idleLooks {
		if got := p.next(0, 0); got != p.longest {
			t.Fatalf("sleeps %v", got)
		}
	}
	for range idleLooks {
		if got := p.next(0, 0); got != 15*time.Millisecond {
			t.Fatalf("idle for a while: sleeps %v", got)
		}
	}
	if got := p.next(0, 0); got != 30*time.Millisecond {
		t.Errorf("idle for long: sleeps %v", got)
	}
	p.next(40, time.Second)
	if got := p.next(0, time.Second); got != p.longest {
		t.Errorf("after a record: sleeps %v", got)
	}
}
