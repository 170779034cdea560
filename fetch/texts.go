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
		if a.Store != StoreMem && a.Store != StoreParts || a.Type.Layout == nil || a.Type.Layout.Members == nil {
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
	case t.Base == Container:
		if !l.Content.Flat() {
			f.container(t, off, path)
		}
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

// container adds the content of a container in the structure.
func (f *textFinder) container(t Type, off int, path []int) {
	p := f.c.prog
	if f.left == 0 || len(p.Texts) == maxTexts {
		return
	}
	a := p.Args[f.arg]
	arg, ok := containerArg(a.Chain, a.StoreOff+int64(off), t, f.c.limit()), true
	if a.Store == StoreParts {
		arg, ok = a.partsOf(off, t, f.c.limit())
	}
	if !ok {
		return
	}
	f.left--
	p.Texts = append(p.Texts, MemberText{Arg: f.arg, Path: slices.Clone(path), Text: len(p.Args)})
	p.Args = append(p.Args, arg)
}

func (f *textFinder) add(t Type, off int, path []int) {
	p := f.c.prog
	if f.left == 0 || len(p.Texts) == maxTexts {
		return
	}
	a := p.Args[f.arg]
	at := func(off int) Chain {
		for i := range a.Parts {
			if p := &a.Parts[i]; p.Off == off && p.Size == 8 {
				return p.Chain
			}
		}
		ch := a.Chain
		ch.Loads = append(slices.Clone(ch.Loads), Load{a.StoreOff + int64(off)})
		return ch
	}
	if a.Store == StoreParts && !a.hasWord(off) {
		return // it stays a number
	}
	text := ArgProgram{Chain: at(off), Store: StoreString, Type: Type{Base: String, Size: 8}}
	if len(text.Loads)+2 > MaxOps {
		return
	}
	if t.Layout != nil && t.Layout.Len != 0 {
		if a.Store == StoreParts && !a.hasWord(off+t.Layout.Len) {
			return
		}
		n := at(off + t.Layout.Len)
		text.Store, text.Len = StoreCounted, &n
	}
	f.left--
	p.Texts = append(p.Texts, MemberText{Arg: f.arg, Path: slices.Clone(path), Text: len(p.Args)})
	p.Args = append(p.Args, text)
}

// partsOf is the container at off of a value that is made of parts; ok is false if
// some of it isn't there.
func (a *ArgProgram) partsOf(off int, t Type, limit Limit) (ArgProgram, bool) {
	c := t.Layout.Content
	out := ArgProgram{Chain: Chain{Source: SourceImm}, Store: StoreContent, Type: t, Bounds: limit}
	have := 0
	for _, p := range a.Parts {
		if p.Off -= off; p.Off >= 0 && p.Off+int(p.Size) <= int(c.Size) {
			out.Parts = append(out.Parts, p)
			have += int(p.Size)
		}
	}
	return out, have >= int(c.Size)
}

// hasWord reports whether one part is the word at off of the value.
func (a *ArgProgram) hasWord(off int) bool {
	return slices.ContainsFunc(a.Parts, func(p Part) bool { return p.Off == off && p.Size == 8 })
}
