package planner

// textSize is the size of a textPiece, in bytes.
const textSize = 256 << 10

// textPiece is a large piece of memory in which the code of many patches waits to be written. Each of them refers
// to it until then.
type textPiece struct{ code []byte }

// Texts packs the code of thousands of stages in pieces. The zero value is empty.
type Texts struct{ last *textPiece }

// Keep copies the code of a patch's stage into a piece, so that the larger buffer in which it was built can be freed.
// The stages of one patch are kept one after another, with no other patch's in between.
func (x *Texts) Keep(p *Patch, stage int, code []byte) {
	if need := max(len(code), int(p.Plan.Room)); p.text == nil && (x.last == nil || need > cap(x.last.code)-len(x.last.code)) {
		x.last = &textPiece{make([]byte, 0, max(textSize, need))}
	}
	p.text = x.last
	s := &p.Stages[stage]
	s.textAt, s.Size = uint32(len(x.last.code)), uint32(len(code))
	x.last.code = append(x.last.code, code...)
}

// Text is the code of a stage; nil once it is written.
func (p *Patch) Text(stage int) []byte {
	if p.text == nil {
		return nil
	}
	s := &p.Stages[stage]
	return p.text.code[s.textAt:][:s.Size:s.Size]
}

// Written forgets the code of the patch's stages, which is in the target now.
func (p *Patch) Written() { p.text = nil }
