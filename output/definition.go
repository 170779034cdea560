package output

import "kprobe/internal/quote"

// Definition is a kept definition.
type Definition struct {
	Group, Event string
	Kind         string // the letter of the definition language
	Place        string
	Text         string // the whole definition in canonical form
	Disabled     bool
}

// AppendDefinitionJSON appends the object of a definition.
func AppendDefinitionJSON(dst []byte, d *Definition) []byte {
	dst = quote.AppendJSON(append(dst, `{"type":"definition","group":`...), d.Group)
	dst = quote.AppendJSON(append(dst, `,"event":`...), d.Event)
	dst = quote.AppendJSON(append(dst, `,"kind":`...), d.Kind)
	dst = quote.AppendJSON(append(dst, `,"place":`...), d.Place)
	dst = quote.AppendJSON(append(dst, `,"definition":`...), d.Text)
	dst = appendBool(append(dst, `,"disabled":`...), d.Disabled)
	return append(dst, '}', '\n')
}
