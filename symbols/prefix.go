package symbols

import "strings"

// NamesWith returns the symbols of code whose names begin with prefix, at most most of them,
// one for each name and address, in the order of the file's tables. A file that can't be read
// has none. It may be called concurrently. Unlike Funcs it sorts nothing and knows no functions
// without symbols: it is for completion while a person is typing.
func (f *File) NamesWith(prefix string, most int) (out []Symbol) {
	var err error
	defer rescue(f.Path, &err)
	type key struct {
		name  string
		vaddr Vaddr
	}
	seen := map[key]bool{}
	for _, t := range f.tables().list {
		for i := range t.symbols {
			s := &t.symbols[i]
			if !strings.HasPrefix(t.text(s.name), prefix) || !f.isCode(t, s) {
				continue
			}
			sym := t.symbol(s)
			if k := (key{sym.Name, sym.Vaddr}); strings.HasPrefix(sym.Name, prefix) && !seen[k] {
				seen[k] = true
				if out = append(out, sym); len(out) == most {
					return out
				}
			}
		}
	}
	return out
}
