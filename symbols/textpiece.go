package symbols

import (
	"bytes"
	"sync/atomic"
	"time"
)

const (
	// pieceSize is how much code is read at once by who goes through a file's functions, in bytes.
	pieceSize = 64 << 10
	// pieceAge is how long such a piece is used: the file may be written meanwhile.
	pieceAge = time.Second
)

// textPieces keeps the piece of a file's code that was read last. Whoever decodes one function after
// another then reads the file once for hundreds of them. The zero value is empty. It is safe for
// concurrent use.
type textPieces struct {
	last  atomic.Pointer[textPiece]
	asked atomic.Uint64 // the offset that was asked for last
}

type textPiece struct {
	off  Off
	code []byte
	read time.Time
}

// bytes is image.bytes.
func (t *textPieces) bytes(im *image, off Off, n uint64) ([]byte, error) {
	near := uint64(off)-t.asked.Swap(uint64(off)) < pieceSize
	if p := t.last.Load(); p.holds(off, n) && time.Since(p.read) < pieceAge {
		return bytes.Clone(p.code[off-p.off:][:n]), nil
	}
	if size := min(pieceSize, uint64(im.size)-min(uint64(off), uint64(im.size))); near && n > 0 && n <= size {
		p := &textPiece{off, make([]byte, size), time.Now()}
		if im.fill(p.code, off, "code") == nil {
			t.last.Store(p)
			return bytes.Clone(p.code[:n]), nil
		}
	}
	return im.bytes(off, n, "code")
}

func (p *textPiece) holds(off Off, n uint64) bool {
	return p != nil && off >= p.off && uint64(off-p.off) <= uint64(len(p.code)) && n <= uint64(len(p.code))-uint64(off-p.off)
}
