package fetch

import (
	"encoding/json"
	"fmt"
)

// portable is what of a program whoever decodes its records needs, without the process
// and its files.
type portable struct {
	Fixed   int           `json:"fixed"`
	MaxText int           `json:"maxText,omitempty"`
	Fields  []Field       `json:"fields"`
	Args    []portableArg `json:"args"`
	Texts   []MemberText  `json:"texts,omitempty"`
	Stack   *StackCopy    `json:"stack,omitempty"`
}

type portableArg struct {
	Store    Store `json:"store"`
	Type     Type  `json:"type"`
	Slot     int   `json:"slot"`
	Size     int   `json:"size"`
	FaultBit int   `json:"fault"`
}

// Portable returns, as JSON, what Decode, Fields and Unwind need.
func (p *Program) Portable() ([]byte, error) {
	out := portable{Fixed: p.Fixed, MaxText: p.MaxText, Fields: p.fields, Texts: p.Texts, Stack: p.Stack}
	for i := range p.Args {
		a := &p.Args[i]
		out.Args = append(out.Args, portableArg{a.Store, a.Type, a.Slot, a.Size, a.FaultBit})
	}
	b, err := json.Marshal(&out)
	if err != nil {
		return nil, fmt.Errorf("write the layout of records: %w", err)
	}
	return b, nil
}

// FromPortable makes a program from what Portable returned. It decodes records, and does
// nothing else. The data is not trusted: errors wrap ErrCorrupt.
func FromPortable(b []byte) (*Program, error) {
	var in portable
	if err := json.Unmarshal(b, &in); err != nil {
		return nil, fmt.Errorf("read the layout of records: %w: %w", ErrCorrupt, err)
	}
	p := &Program{Fixed: in.Fixed, MaxText: in.MaxText, Texts: in.Texts, Stack: in.Stack, fields: in.Fields}
	for i := range in.Args {
		a := &in.Args[i]
		p.Args = append(p.Args, ArgProgram{Store: a.Store, Type: a.Type, Slot: a.Slot, Size: a.Size, FaultBit: a.FaultBit})
	}
	if !p.sound() {
		return nil, fmt.Errorf("read the layout of records: %w", ErrCorrupt)
	}
	return p, nil
}

// sound reports whether Decode stays within records of Fixed bytes.
func (p *Program) sound() bool {
	if p.Fixed < 0 || p.Fixed > MaxData || p.MaxText < 0 || len(p.fields) > len(p.Args) || len(p.Args) > MaxData/8 {
		return false
	}
	for i := range p.Args {
		a := &p.Args[i]
		if a.Slot < 0 || a.Size < 0 || a.Slot > p.Fixed-max(a.Size, 8) || a.FaultBit >= 8*p.Fixed || !a.Type.sound(a, 0) {
			return false
		}
	}
	for i := range p.Texts {
		t := &p.Texts[i]
		if t.Arg < 0 || t.Arg >= len(p.fields) || t.Text < 0 || t.Text >= len(p.Args) {
			return false
		}
		for _, at := range t.Path {
			if at < 0 {
				return false
			}
		}
	}
	s := p.Stack
	return s == nil || s.Slot >= 0 && s.Bytes >= 0 && s.Bytes <= MaxData && s.Frames >= 0 &&
		(s.Mark == 0 && s.Slot <= p.Fixed-s.Size() || s.Mark > 0 && s.Mark <= s.Slot-8 && s.Slot <= p.Fixed)
}

// mostNested bounds how deep types lie in types.
const mostNested = 64

// sound reports whether values of a type can be decoded. a is the argument that it is
// of, nil for those of its parts.
func (t Type) sound(a *ArgProgram, depth int) bool {
	if t.Size > 8 || depth > mostNested {
		return false
	}
	if a != nil && t.Count != 0 && t.Layout == nil {
		n := int(t.Count) * int(t.Size)
		if t.IsText() {
			n = 8 * int(t.Count)
		}
		if n > a.Size {
			return false
		}
	}
	if a != nil && t.IsText() && 8*max(int(t.Count), 1) > max(a.Size, 8) {
		return false
	}
	l := t.Layout
	if l == nil {
		return t.Base != Container
	}
	if t.Base == Container && !l.Content.sound(depth+1) || l.Switch < 0 || l.Switch > len(l.Members) {
		return false
	}
	for i := range l.Members {
		if !l.Members[i].Type.sound(nil, depth+1) {
			return false
		}
	}
	return true
}

// sound is the same for what is in a container.
func (c *Content) sound(depth int) bool {
	if c == nil || depth > mostNested || c.Size < 0 || c.Size > MaxData || !c.Type.sound(nil, depth+1) {
		return false
	}
	switch c.Kind {
	case ContentPlain, ContentText, ContentTime, ContentBits, ContentInterface, ContentStruct, ContentVariant:
	case ContentBTree:
		if c.BTree == nil || !c.BTree.Key.sound(depth+1) || c.BTree.Val != nil && !c.BTree.Val.sound(depth+1) {
			return false
		}
	case ContentMap:
		if c.Map == nil || !c.Map.KeyElem.sound(depth+1) || c.Map.ValElem != nil && !c.Map.ValElem.sound(depth+1) {
			return false
		}
	default:
		if !c.Elem.sound(depth + 1) {
			return false
		}
	}
	for i := range c.Members {
		if !c.Members[i].Elem.sound(depth + 1) {
			return false
		}
	}
	return true
}
