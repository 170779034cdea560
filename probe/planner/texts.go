package planner

// textSize is the size of a textPiece, in bytes.
const textSize = 256 << 10

// textPiece is a large piece of memory in which the code of many stages waits to be written. Each of them refers
// to it until then.
type textPiece struct{ code []byte }

// Texts packs the code of thousands of stages in pieces. The zero value is empty.
type Texts struct{ last *textPiece }

// Keep copies a stage's code into a piece, so that the larger buffer in which it was built can be freed.
func (x *Texts) Keep(s *Stage, code []byte) {
	if x.last == nil || len(code) > cap(x.last.code)-len(x.last.code) {
		x.last = &textPiece{make([]byte, 0, max(textSize, len(code)))}
	}
	s.text, s.textAt, s.Size = x.last, uint32(len(x.last.code)), uint32(len(code))
	x.last.code = append(x.last.code, code...)
	if s.Detour != nil {
		s.Detour.Code = nil
	}
}

// Text is the stage's code; nil once it is written.
func (s *Stage) Text() []byte {
	if s.text == nil {
		return nil
	}
	return s.text.code[s.textAt:][:s.Size:s.Size]
}

// Written forgets the stage's code, which is in the target now.
func (s *Stage) Written() { s.text = nil }
