package planner

// The code of thousands of stages waits to be written. It is packed in large pieces of memory.

// textPiece is the size of such a piece, in bytes.
const textPiece = 256 << 10

// keepText copies a stage's code into such a piece, so that the larger buffer in which it was built can be
// freed.
func (o *planner) keepText(st *Stage, text []byte) {
	if len(text) > cap(o.texts)-len(o.texts) {
		o.texts = make([]byte, 0, max(textPiece, len(text)))
	}
	from := len(o.texts)
	o.texts = append(o.texts, text...)
	st.Text, st.sketch = o.texts[from:len(o.texts):len(o.texts)], nil
	if st.Detour != nil {
		st.Detour.Code = nil
	}
}
