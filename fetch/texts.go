package fetch

import "slices"

// How many strings are recorded of one structure, and of all of a definition:
// each takes as much of the thread's stack at the hit as two numbers.
const (
	maxMemberTexts = 16
	maxTexts       = 32
)

// addTexts adds an argument for each string in a structure that is recorded
// whole, behind those that the definition names.
func (c *compiler) addTexts() {
	for i := range c.prog.fields {
		a := &c.prog.Args[i]
		if a.Store != StoreMem || a.Type.Layout == nil || a.Type.Layout.Members == nil {
			continue
		}
		t := textFinder{c: c, arg: i, left: maxMemberTexts}
		t.find(a.Type, 0, nil)
	}
}

type textFinder struct {
	c    *compiler
	arg  int
	left int
}

// find looks for strings in a value of type t, off bytes into the structure.
func (f *textFinder) find(t Type, off int, path []int) {
	switch l := t.Layout; {
	case l != nil && l.Members != nil:
		for i := range l.Members {
			f.find(l.Members[i].Type, off+l.Members[i].Off, append(path, i))
		}
	case t.Base != String:
	case t.Count != 0:
		for i := range int(t.Count) {
			f.add(t, off+8*i, append(path, i))
		}
	default:
		f.add(t, off, path)
	}
}

func (f *textFinder) add(t Type, off int, path []int) {
	p := f.c.prog
	if f.left == 0 || len(p.Texts) == maxTexts {
		return
	}
	a := p.Args[f.arg]
	at := func(off int) Chain {
		ch := a.Chain
		ch.Loads = append(slices.Clone(ch.Loads), Load{a.StoreOff + int64(off)})
		return ch
	}
	text := ArgProgram{Chain: at(off), Store: StoreString, Type: Type{Base: String, Size: 8}}
	if len(text.Loads)+2 > MaxOps {
		return
	}
	if t.Layout != nil && t.Layout.Len != 0 {
		n := at(off + t.Layout.Len)
		text.Store, text.Len = StoreCounted, &n
	}
	f.left--
	p.Texts = append(p.Texts, MemberText{Arg: f.arg, Path: slices.Clone(path), Text: len(p.Args)})
	p.Args = append(p.Args, text)
}
