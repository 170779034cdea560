// Package inflate unpacks large streams in zlib's format (RFC 1950, RFC 1951) that lie in memory, in half the time
// that readers of any stream take. It is no complete reader: whatever is unusual is ErrDoubt, and a complete reader
// then says what the stream is. What it does unpack has the length and the checksum that the stream must have.
package inflate

import (
	"encoding/binary"
	"errors"
	"hash/adler32"
	"io"
	"sync"
)

// ErrDoubt says that a stream is damaged, or unusual, or of another length than expected.
var ErrDoubt = errors.New("the stream is damaged or unusual")

// Sizes of a block of unpacked bytes, of how far back a copy may reach, and of what may be written behind the end of a
// block: the longest copy, in steps of 8 bytes, and literals. blocks is how many there are.
const (
	blockBytes = 512 << 10
	window     = 32 << 10
	slack      = 258 + 8 + 4
	blocks     = 4
)

// block is unpacked bytes, behind those before them.
type block struct {
	buf      []byte // as much as copies may reach back, the block's own bytes, slack
	from, to int    // its own bytes
}

// Copy unpacks packed and writes what comes out, size bytes, to w. Another goroutine adds up the checksum and writes,
// so two CPUs work. read, if it isn't nil, is called with how many bytes of packed were read.
//
// The error is ErrDoubt, or that of w. w has then got a part, or other bytes than it should. The memory that Copy
// takes doesn't depend on size.
func Copy(w io.Writer, packed []byte, size int64, read func(n int)) error {
	const header = 2
	if len(packed) < header || packed[0]&0x0f != 8 || packed[0]>>4 > 7 || packed[1]&0x20 != 0 || binary.BigEndian.Uint16(packed)%31 != 0 {
		return ErrDoubt
	}
	each := int(min(max(size, 1), blockBytes))
	free, full := make(chan *block, blocks), make(chan *block, blocks)
	for range blocks {
		free <- &block{buf: make([]byte, min(window, each)+each+slack)}
	}
	var broke error // of writing
	sum := adler32.New()
	var wait sync.WaitGroup
	wait.Go(func() {
		defer close(free)
		for b := range full {
			sum.Write(b.buf[b.from:b.to]) //nolint:errcheck // a hash takes all
			if _, broke = w.Write(b.buf[b.from:b.to]); broke != nil {
				return
			}
			free <- b
		}
	})
	d := decoder{in: packed[header:]}
	ok := false
	func() {
		defer wait.Wait() // also if packed is a mapped file that is cut short, which is a panic
		defer close(full)
		var last *block
		left := size
		for b := range free {
			b.from = 0
			if last != nil { // a block that was handed over is only read
				b.from = copy(b.buf, last.buf[max(last.to-window, 0):last.to])
			}
			b.to = d.fill(b.buf, b.from, b.from+each)
			if left -= int64(b.to - b.from); d.bad || left < 0 {
				return
			}
			full <- b
			if last = b; read != nil {
				read(header + min(d.at, len(d.in)))
			}
			if d.ended() {
				ok = left == 0
				return
			}
		}
	}()
	if broke != nil {
		return broke
	}
	tail := d.rest()
	if !ok || len(tail) < 4 || binary.BigEndian.Uint32(tail) != sum.Sum32() {
		return ErrDoubt
	}
	return nil
}
