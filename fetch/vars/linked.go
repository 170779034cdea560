package vars

import (
	"debug/dwarf"
	"fmt"

	"kprobe/symbols"
	"kprobe/symbols/debuginfo"
)

// address is where the process has what the file has at an address. Of a variable that
// another module's has taken the place of, it is the one that the program uses.
func (f *frame) address(v uint64) sym {
	if p, ok := f.scope.space.Preempted(f.module, symbols.Vaddr(v)); ok {
		return preempted(p)
	}
	return constant(uint64(f.module.Addr(symbols.Vaddr(v))))
}

func preempted(p symbols.Preempted) sym {
	if p.Slot == 0 {
		return constant(uint64(p.At))
	}
	return constant(uint64(p.Slot)).load(8).add(int64(p.At))
}

// linked is the place of a variable that a unit declares (extern) and that no unit with debug
// information defines: where the code finds it.
func (f *frame) linked(e *debuginfo.Entry) (place, bool) {
	if !e.Flag(dwarf.AttrDeclaration) || !e.Flag(dwarf.AttrExternal) {
		return place{}, false
	}
	name := e.LinkageName()
	if name == "" {
		name = e.Name()
	}
	p, ok := f.scope.space.Linked(f.module, name)
	return place{kind: inMemory, sym: preempted(p)}, ok
}

// elsewhere reports a variable of another source file's own, while the code may use one of the
// same name that debug information doesn't declare here: LLVM leaves out what is extern.
func (f *frame) elsewhere(e *debuginfo.Entry) error {
	_, at, has := e.Chased(dwarf.AttrExternal)
	fn := f.meant()
	if has && at.Flag(dwarf.AttrExternal) || e.Unit() == fn.Unit() || !(fn.Unit().Language().IsC() || fn.Unit().Language().IsCXX()) {
		return nil
	}
	if _, ok := f.scope.space.Linked(f.module, e.Name()); !ok {
		return nil
	}
	u := e.Unit()
	return fmt.Errorf("%s: debug information has only that of %s, and this code can use another one: @%s:TYPE", e.Name(), u.Name(), e.Name())
}

// undefinedVariable says why a variable can't be had that has no location.
func (f *frame) undefinedVariable(e *debuginfo.Entry) error {
	switch _, first := constantOf(e); {
	case first && e.Flag(dwarf.AttrDeclaration):
		return unknown("debug information has only what the variable begins with")
	case e.Flag(dwarf.AttrDeclaration) && e.Flag(dwarf.AttrExternal):
		return noValueError("it is declared here, and neither debug information nor a symbol says where it is")
	}
	return f.optimizedOut(nil)
}

// isConst reports a variable that its type lets nobody change.
func isConst(e *debuginfo.Entry) bool {
	_, at, ok := e.Chased(dwarf.AttrType)
	for range maxChain {
		if !ok {
			return false
		}
		r, has := at.RefTo(dwarf.AttrType)
		if at, ok = r.Entry(); !has || !ok {
			return false
		}
		switch at.Tag() {
		case dwarf.TagConstType:
			return true
		case dwarf.TagTypedef, dwarf.TagVolatileType, dwarf.TagAtomicType:
		default:
			return false
		}
	}
	return false
}
