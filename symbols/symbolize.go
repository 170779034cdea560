package symbols

import (
	"slices"
	"sync/atomic"
)

// memo remembers the names of addresses that were asked for last. Each slot holds the last
// address that fell into it.
type memo struct {
	slots [1 << memoBits]atomic.Pointer[named]
}

const memoBits = 12

// named is an address with its name.
type named struct {
	addr      Addr
	name      string
	off, size uint64
	module    *Module
	ok        bool
}

// slot spreads addresses by the multiplicative hash of Knuth's TAOCP 6.4.
func (m *memo) slot(a Addr) *atomic.Pointer[named] {
	return &m.slots[uint64(a)*0x9e3779b97f4a7c15>>(64-memoBits)]
}

// Symbolize names an address. It returns the demangled name of the function that holds it, the
// address's distance from the function's start, and the function's size, both in bytes. If no
// function is known there, ok is false, and m is the module, or nil. Code that is no longer
// mapped keeps its name as long as nothing else is mapped there. Asking for the same address
// again costs no allocation.
func (s *Space) Symbolize(a Addr) (name string, off, size uint64, m *Module, ok bool) {
	v := s.now.Load()
	n := v.named(&v.names, a, false)
	return n.name, n.off, n.size, n.module, n.ok
}

// SymbolAt is Symbolize for printers of values (fetch.Symbolizer).
func (s *Space) SymbolAt(a Addr) (name string, off, size uint64, ok bool) {
	name, off, size, _, ok = s.Symbolize(a)
	return name, off, size, ok
}

// SymbolizeShort names an address as Symbolize does, but with the function's short name
// (Symbol.Short).
func (s *Space) SymbolizeShort(a Addr) (name string, off, size uint64, m *Module, ok bool) {
	v := s.now.Load()
	n := v.named(&v.short, a, true)
	return n.name, n.off, n.size, n.module, n.ok
}

func (v *view) named(m *memo, a Addr, short bool) *named {
	slot := m.slot(a)
	n := slot.Load()
	if n == nil || n.addr != a {
		n = v.symbolize(a, short)
		slot.Store(n)
	}
	return n
}

func (v *view) symbolize(a Addr, short bool) *named {
	n := &named{addr: a, module: v.moduleAt(a)}
	if n.module == nil {
		n.module = v.formerAt(a)
	}
	if n.module == nil {
		return n
	}
	at := n.module.Vaddr(a)
	f := n.module.File
	list := f.functions()
	if i := entryAt(list, at); i >= 0 {
		e := &list[i]
		n.name, n.off, n.size, n.ok = f.readableName(i, short), uint64(at-e.start), uint64(e.end-e.start), true
		return n
	}
	if fn, ok := f.FuncAt(at); ok {
		n.name, n.off, n.size, n.ok = fn.Symbol.readable(short), uint64(at-fn.Start), fn.Size(), true
	}
	return n
}

// formerAt returns the module that had an address mapped, if nothing is mapped there now. Hits
// are named later than they happen.
func (v *view) formerAt(a Addr) *Module {
	if slices.ContainsFunc(v.maps, func(m Mapping) bool { return m.Contains(a) }) {
		return nil
	}
	for _, m := range v.former {
		if slices.ContainsFunc(m.Maps, func(x Mapping) bool { return x.Contains(a) }) {
			return m
		}
	}
	return nil
}

// readableName returns the demangled name of the i-th function, or its short name. It makes
// each name once.
func (f *File) readableName(i int, short bool) string {
	list, names := f.functions(), &f.readable
	if short {
		names = &f.short
	}
	made := names.get(func() []atomic.Pointer[string] { return make([]atomic.Pointer[string], len(list)) })
	if p := made[i].Load(); p != nil {
		return *p
	}
	name := f.function(&list[i]).Symbol.readable(short)
	made[i].Store(&name)
	return name
}

func (s Symbol) readable(short bool) string {
	if short {
		return s.Short()
	}
	return s.Demangled()
}
