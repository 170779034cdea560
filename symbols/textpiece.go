package symbols

import (
	"sync"
	"time"
	"weak"
)

const (
	// pieceSize is how much code is read at once by who goes through a file's functions, in bytes.
	pieceSize = 64 << 10
	// pieceAge is how long such a piece is used: the file may be written meanwhile.
	pieceAge = time.Second
	// pieceReaders is how many places of a file may be read on from at the same time: one who plans
	// functions, those who decode them ahead, and one who follows jumps.
	pieceReaders = 4
)

// textPieces keeps the pieces of a file's code that were read last. Whoever decodes one function after
// another then reads the file once for hundreds of them. The zero value is empty. It is safe for
// concurrent use.
type textPieces struct {
	mu     sync.Mutex
	pieces [pieceReaders]textPiece
	asks   uint64 // how often was asked
}

// textPiece is what one reader goes through.
type textPiece struct {
	off   Off
	size  int                           // of the code from off on that was read; 0: none was
	room  weak.Pointer[[pieceSize]byte] // where it is; a collection of garbage takes it
	read  time.Time
	asked Off    // what was asked for last
	used  uint64 // the number of that question; 0: none
}

// append is image.append.
func (t *textPieces) append(b []byte, im *image, off Off, n uint64) ([]byte, error) {
	if out := t.ask(b, im, off, n); out != nil {
		return out, nil
	}
	return im.append(b, off, n, "code")
}

// ask appends to b what a piece has. It reads one if the question is the next of a reader; nil: it isn't, or the file
// can't be read.
func (t *textPieces) ask(b []byte, im *image, off Off, n uint64) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asks++
	p, next := &t.pieces[0], false
	for i := range t.pieces {
		q := &t.pieces[i]
		if code := q.code(off, n); code != nil && time.Since(q.read) < pieceAge {
			q.asked, q.used = off, t.asks
			return append(b, code...)
		}
		switch {
		case q.used > 0 && uint64(off)-uint64(q.asked) < pieceSize && (!next || q.used > p.used):
			p, next = q, true
		case !next && q.used < p.used:
			p = q
		}
	}
	p.asked, p.used = off, t.asks
	size := min(pieceSize, uint64(im.size)-min(uint64(off), uint64(im.size)))
	if p.size = 0; !next || n == 0 || n > size {
		return nil
	}
	room := p.room.Value()
	if room == nil {
		room = new([pieceSize]byte)
		p.room = weak.Make(room)
	}
	if im.fill(room[:size], off, "code") != nil {
		return nil
	}
	p.off, p.size, p.read = off, int(size), time.Now()
	return append(b, room[:n]...)
}

// code returns n bytes of the piece; nil if it doesn't have them.
func (p *textPiece) code(off Off, n uint64) []byte {
	skip := uint64(off) - uint64(p.off)
	if off < p.off || skip > uint64(p.size) || n > uint64(p.size)-skip {
		return nil
	}
	room := p.room.Value()
	if room == nil {
		return nil
	}
	return room[skip:][:n]
}
