package recording

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// maxWaiting is how many blocks wait for a slow disk: with blocks of records that is
// 64 MB, of which a recording at full speed fills 300 MB a second and more.
const maxWaiting = 128

// outlet writes blocks to a file, beside whoever makes them once begin was called: a disk
// that stalls for a moment holds nobody up.
type outlet struct {
	w    io.Writer
	pack *zstd.Encoder // nil: blocks of records are not compressed

	todo  chan piece // nil: put writes itself
	spare chan []byte
	done  chan struct{}

	mu    sync.Mutex
	err   error  // guarded by mu
	bytes int64  // guarded by mu: of whole blocks in the file
	hits  uint64 // guarded by mu: that they have
}

// piece is a block on its way.
type piece struct {
	b    []byte // with room for its head, if typ isn't 0
	typ  byte
	hits uint64
}

// begin has blocks written by a goroutine of their own, until end is called.
func (o *outlet) begin() {
	o.todo, o.spare, o.done = make(chan piece, maxWaiting), make(chan []byte, maxWaiting), make(chan struct{})
	go func() {
		defer close(o.done)
		for p := range o.todo {
			o.write(p)
			select {
			case o.spare <- p.b[:0]:
			default:
			}
		}
	}()
}

// end waits until all is written, or can't be.
func (o *outlet) end() {
	if o.todo != nil {
		close(o.todo)
		<-o.done
		o.todo = nil
	}
}

// room gives a block to fill, with room for its head.
func (o *outlet) room() []byte {
	var b []byte
	if o.spare != nil {
		select {
		case b = <-o.spare:
		default:
		}
	}
	if cap(b) < blockSize {
		b = make([]byte, 0, blockSize+4096)
	}
	return b[:blockHead]
}

// put writes a block, and takes it; typ 0 is bytes that are no block. The error is that of
// a block before where a goroutine writes them.
func (o *outlet) put(typ byte, b []byte, hits uint64) error {
	if len(b)-blockHead > MaxBlock {
		return fmt.Errorf("a block of %d bytes", len(b)-blockHead)
	}
	if o.todo == nil {
		o.write(piece{b, typ, hits})
		return o.failed()
	}
	if err := o.failed(); err != nil {
		return err
	}
	o.todo <- piece{b, typ, hits}
	return nil
}

// failed is why no more is written.
func (o *outlet) failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// written is how many bytes the file has, in whole blocks, and how many hits are in those.
func (o *outlet) written() (bytes int64, hits uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.bytes, o.hits
}

func (o *outlet) write(p piece) {
	if o.failed() != nil {
		return
	}
	if p.typ == blockRecords && o.pack != nil {
		p = o.packed(p)
	}
	if p.typ != 0 {
		p.b[0], p.b[1], p.b[2], p.b[3] = p.typ, 0, 0, 0
		binary.LittleEndian.PutUint32(p.b[4:], uint32(len(p.b)-blockHead))
		putSum(p.b)
	}
	_, err := o.w.Write(p.b)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err = err; err == nil {
		o.bytes += int64(len(p.b))
		o.hits += p.hits
	}
}

// packed compresses a block of records, if that makes it smaller.
func (o *outlet) packed(p piece) piece {
	b := append(make([]byte, 0, len(p.b)/2), p.b[:blockHead]...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(p.b)-blockHead))
	if b = o.pack.EncodeAll(p.b[blockHead:], b); len(b) >= len(p.b) {
		return p
	}
	return piece{b, blockPacked, p.hits}
}
