package symbols

import "encoding/binary"

// A constructor or destructor becomes several functions (Itanium C++ ABI,
// 5.1.4.3): for a whole object, for one that is part of another, and one that
// also gives the memory back. Each object is made by one of them, so all are
// places of one event; but those that do their work by another, as clang's
// complete object constructors and all deleting destructors do, would count it
// twice, and are none.

// structors gives the functions of one constructor or destructor whose hits are
// its calls; nil if list, functions at different addresses, is anything else.
// names are those and their aliases.
func (f *File) structors(list, names []Symbol) []Symbol {
	for i := range list {
		if structorKind(list[i].Name, list) == "" || len(list[i].Name) != len(list[0].Name) ||
			list[i].Demangled() != list[0].Demangled() {
			return nil
		}
	}
	stubs := map[Vaddr]Vaddr{} // of the PLT, and the function behind
	for _, s := range names {
		for _, stub := range f.lookupRaw(s.Name + "@plt") {
			stubs[stub.Vaddr] = s.Vaddr
		}
	}
	starts := map[Vaddr]bool{}
	for _, s := range list {
		starts[s.Vaddr] = true
	}
	var out []Symbol
	for _, s := range list {
		if !f.delegates(s, starts, stubs) {
			out = append(out, s)
		}
	}
	return out
}

// delegates reports whether a function calls or jumps to the start of another
// one. Code is searched byte by byte: four bytes that are by chance the distance
// to the very start of a sibling don't occur.
func (f *File) delegates(s Symbol, starts map[Vaddr]bool, stubs map[Vaddr]Vaddr) bool {
	if s.Size == 0 || s.Size > 1<<20 {
		return false
	}
	code, err := f.Text(s.Vaddr, int(s.Size))
	if err != nil {
		return false
	}
	const call, jmp = 0xe8, 0xe9
	for i := 0; i+5 <= len(code); i++ {
		if code[i] != call && code[i] != jmp {
			continue
		}
		to := s.Vaddr + Vaddr(i+5) + Vaddr(int64(int32(binary.LittleEndian.Uint32(code[i+1:]))))
		if behind, ok := stubs[to]; ok {
			to = behind
		}
		if to != s.Vaddr && starts[to] {
			return true
		}
	}
	return false
}
