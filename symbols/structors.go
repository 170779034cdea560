package symbols

import "encoding/binary"

// A compiler makes several functions of a constructor or destructor (Itanium C++ ABI, 5.1.4.3):
// for a complete object, for one that is part of another, and one that also frees the memory.
// One of them handles each object, so all are places of one event. But some call another one to
// do the work, such as clang's constructors of complete objects and all deleting destructors.
// They are left out, because they would count an object twice.

// structors returns the functions of one constructor or destructor whose hits are its calls.
// It returns nil if list, which has functions at different addresses, is anything else. names
// are those functions and their aliases.
func (f *File) structors(list, names []Symbol) []Symbol {
	for i := range list {
		if structorKind(list[i].Name, list) == "" || len(list[i].Name) != len(list[0].Name) ||
			list[i].Demangled() != list[0].Demangled() {
			return nil
		}
	}
	stubs := map[Vaddr]Vaddr{} // PLT stub → the function it jumps to
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

// delegates reports whether a function calls or jumps to the start of another one. It searches
// code byte by byte; four bytes that match the distance to a sibling's start by chance don't
// occur.
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
