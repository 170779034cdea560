package symbols

import (
	"bytes"
	"sync"
	"time"
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
	code  []byte // from off on; empty: nothing was read
	room  []byte // where code is
	read  time.Time
	asked Off    // what was asked for last
	used  uint64 // the number of that question; 0: none
}

// bytes is image.bytes.
func (t *textPieces) bytes(im *image, off Off, n uint64) ([]byte, error) {
	if b := t.ask(im, off, n); b != nil {
		return b, nil
	}
	return im.bytes(off, n, "code")
}

// ask answers from a piece. It reads one if the question is the next of a reader; nil: it isn't, or the file
// can't be read.
func (t *textPieces) ask(im *image, off Off, n uint64) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asks++
	p, next := &t.pieces[0], false
	for i := range t.pieces {
		switch q := &t.pieces[i]; {
		case q.holds(off, n) && time.Since(q.read) < pieceAge:
			q.asked, q.used = off, t.asks
			return bytes.Clone(q.code[off-q.off:][:n])
		case q.used > 0 && uint64(off)-uint64(q.asked) < pieceSize && (!next || q.used > p.used):
			p, next = q, true
		case !next && q.used < p.used:
			p = q
		}
	}
	p.asked, p.used = off, t.asks
	size := min(pieceSize, uint64(im.size)-min(uint64(off), uint64(im.size)))
	if p.code = nil; !next || n == 0 || n > size {
		return nil
	}
	if p.room == nil {
		p.room = make([]byte, pieceSize)
	}
	if im.fill(p.room[:size], off, "code") != nil {
		return nil
	}
	p.off, p.code, p.read = off, p.room[:size], time.Now()
	return bytes.Clone(p.code[:n])
}

func (p *textPiece) holds(off Off, n uint64) bool {
	return off >= p.off && uint64(off-p.off) <= uint64(len(p.code)) && n <= uint64(len(p.code))-uint64(off-p.off)
}
