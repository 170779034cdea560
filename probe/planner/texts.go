package planner

// Thousands of stages wait to be written: their code lies close together.

// textPiece is how much memory for code is taken at once.
const textPiece = 256 << 10

// keepText copies a stage's code to where that of others lies close by, and lets what it
// was built in go: thousands of stages wait to be written.
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
