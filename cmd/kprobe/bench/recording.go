package bench

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"kprobe/output/recording"
	"kprobe/probe"
)

// recordedMost bounds the hits that are recorded, in a file of 32 bytes for each.
const recordedMost = 4 << 20

// recording measures what kprobe takes for a hit that it keeps in a file, and how many
// get there while one thread does nothing but hit the probe.
func (m *meter) recording(ctx context.Context) error {
	for _, pack := range []bool{false, true} {
		if err := m.recorded(ctx, pack); err != nil {
			return err
		}
	}
	return nil
}

func (m *meter) recorded(ctx context.Context, pack bool) error {
	name := filepath.Join(m.dir, "bench.kprobe")
	rec, err := recording.Create(name, &recording.Header{}, pack)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(name) }()
	var row Row
	between, out, err := armFor(ctx, m.p.cmd.Process.Pid, []string{"p:record work" + fetched}, probe.Options{RingSize: recordRing}, &row, rec)()
	if err != nil {
		return errors.Join(err, rec.Close(nil))
	}
	begun := rec.Size()
	before, err := processor()
	start := time.Now()
	for err == nil && time.Since(start) < m.o.Each && rec.Hits() < recordedMost {
		_, err = m.p.call(1, m.p.function("work"), most)
	}
	if err == nil {
		err = between()
	}
	err = errors.Join(err, rec.Flush())
	took := time.Since(start)
	after, perr := processor()
	hits, bytes := rec.Hits(), rec.Size()-begun
	err = errors.Join(err, perr, out(), rec.Close(nil))
	if err != nil {
		return err
	}
	if hits == 0 {
		return errors.New("no hit was recorded")
	}
	how := "2 arguments"
	if pack {
		how = "2 arguments, compressed"
	}
	m.figure(float64((after-before).Nanoseconds())/float64(hits), "ns", "a hit is recorded: processor time, %s", how)
	m.figure(float64(bytes)/float64(hits), "bytes", "a hit is recorded: room in the file, %s", how)
	m.figure(float64(hits)/took.Seconds(), "1/s", "hits that are recorded at full speed, %s", how)
	m.figure(100*row.Lost, "%", "hits that are lost then, %s", how)
	return nil
}

// recordRing is the size of a ring, that of kprobe record.
const recordRing = 16 << 20
