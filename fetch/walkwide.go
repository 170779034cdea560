package fetch

import (
	"math"
	"unicode/utf16"
	"unicode/utf8"
)

// wide records text of n units of 2 or 4 bytes, UTF-16 or UTF-32, as UTF-8: with n
// math.MaxUint64 what stands before a NUL, where a null pointer is none. A surrogate
// that is alone becomes the three bytes that it would be in UTF-8, so that it shows;
// a unit that is no character makes the text (invalid).
func (w *walker) wide(p, n uint64, unit int) {
	untilNUL := n == math.MaxUint64
	if untilNUL && p == 0 {
		w.put(contentNone)
		return
	}
	start := w.number()
	high := rune(-1) // the first half of a pair
	for done := uint64(0); done < n; {
		chunk := min(len(w.buf), unit*int(min(n-done, uint64(len(w.buf)))))
		if untilNUL { // and not beyond the page, where nothing may be
			chunk = min(chunk, max(unit, int(pageSize-p%pageSize)/unit*unit))
		}
		if !w.read(w.buf[:chunk], p) {
			w.undo(start, contentFault)
			return
		}
		for at := 0; at < chunk; at += unit {
			u := rune(littleEndian(w.buf[at : at+unit]))
			switch {
			case untilNUL && u == 0:
				n = done
			case u < 0 || u > utf8.MaxRune:
				w.undo(start, contentInvalid)
				return
			}
			if high >= 0 {
				if r := utf16.DecodeRune(high, u); n != done && r != utf8.RuneError {
					w.e.dst, high = utf8.AppendRune(w.e.dst, r), -1
					done++
					continue
				}
				w.e.dst, high = appendSurrogate(w.e.dst, high), -1
			}
			if n == done {
				break
			}
			switch {
			case u >= 0xd800 && u < 0xdc00 && unit == 2:
				high = u
			case u >= 0xd800 && u < 0xe000:
				w.e.dst = appendSurrogate(w.e.dst, u)
			default:
				w.e.dst = utf8.AppendRune(w.e.dst, u)
			}
			done++
			if len(w.e.dst)-start-3 > maxContentText-2*utf8.UTFMax && high < 0 {
				w.count(start, len(w.e.dst)-start-3, untilNUL || done < n)
				return
			}
		}
		p += uint64(chunk)
	}
	if high >= 0 {
		w.e.dst = appendSurrogate(w.e.dst, high)
	}
	w.count(start, len(w.e.dst)-start-3, false)
}

func appendSurrogate(dst []byte, r rune) []byte {
	return append(dst, 0xe0|byte(r>>12), 0x80|byte(r>>6)&0xbf, 0x80|byte(r)&0xbf)
}
