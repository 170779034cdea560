package probe

import "kprobe/probe/detour"

// How the detours of thousands of places stay small until they are written: what says how
// they are undone is the same for nearly all of them, and their code lies in pieces that
// have nothing else.

// mostAlike is how many detours at most are kept that others may be like.
const mostAlike = 1 << 12

// share has a detour use what an earlier one has.
func (o *planner) share(d *detour.Detour) {
	if d == nil {
		return
	}
	like := d.Looks()
	if of := o.shared[like]; of != nil {
		d.Share(of)
		return
	}
	if o.shared == nil {
		o.shared = map[uint64]*detour.Detour{}
	}
	if len(o.shared) < mostAlike {
		o.shared[like] = d
	}
}

// textPiece is how much memory for code is taken at once.
const textPiece = 256 << 10

// keepText copies a stage's code to where that of others lies close by, and lets what it
// was built in go: thousands of stages wait to be written.
func (o *planner) keepText(st *stage, text []byte) {
	if len(text) > cap(o.texts)-len(o.texts) {
		o.texts = make([]byte, 0, max(textPiece, len(text)))
	}
	from := len(o.texts)
	o.texts = append(o.texts, text...)
	st.text, st.sketch = o.texts[from:len(o.texts):len(o.texts)], nil
	if st.detour != nil {
		st.detour.Code = nil
	}
}
