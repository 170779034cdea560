package vars

import "kprobe/fetch"

// textParts returns where a string structure of Go, Rust or C++ holds the address of its bytes
// and their number, in bytes from its start.
func (f *frame) textParts(t ctype) (ptr, length int64, ok bool) {
	if t.kind != kindStruct {
		return 0, 0, false
	}
	v := value{f: f, t: f.whole(t), p: place{kind: inMemory, sym: constant(0)}}
	at, n, ok := v.text()
	if !ok {
		return 0, 0, false
	}
	ptr, ok = at.member()
	length, isMember := n.member()
	return ptr, length, ok && isMember && length != ptr
}

// member returns the offset of a value that is one word of a structure at address 0.
func (s sym) member() (off int64, ok bool) {
	if s.src.Source != fetch.SourceImm || len(s.steps) != 1 || s.steps[0].Op != fetch.StepLoad || s.steps[0].Size != 8 {
		return 0, false
	}
	return int64(s.src.Imm + s.steps[0].Imm), true
}
