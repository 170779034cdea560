package fetch

// Standalone reports whether the records of a program say all by themselves, with what
// Portable writes down: no value is a symbol's name or of a type that only the process
// knows (Dynamic), and there is no copy of a stack.
func (p *Program) Standalone() bool {
	if p.Stack != nil {
		return false
	}
	for i := range p.Args {
		if p.Args[i].Store == StoreSymbol || p.Args[i].Type.names(0) {
			return false
		}
	}
	return true
}

// names reports whether values of a type, or of one of its parts, are names of symbols.
func (t Type) names(depth int) bool {
	if t.Base == SymbolName || t.Base == SymbolText || depth > mostNested {
		return true
	}
	l := t.Layout
	if l == nil {
		return false
	}
	for i := range l.Members {
		if l.Members[i].Type.names(depth + 1) {
			return true
		}
	}
	return t.Base == Container && l.Content.names(depth+1)
}

func (c *Content) names(depth int) bool {
	switch {
	case c == nil:
		return false
	case depth > mostNested, c.Dynamic != nil, c.Type.names(depth + 1), c.Elem.names(depth + 1):
		return true
	case c.Map != nil && (c.Map.KeyElem.names(depth+1) || c.Map.ValElem.names(depth+1)):
		return true
	case c.BTree != nil && (c.BTree.Key.names(depth+1) || c.BTree.Val.names(depth+1)):
		return true
	}
	for i := range c.Members {
		if c.Members[i].Elem.names(depth + 1) {
			return true
		}
	}
	return false
}
