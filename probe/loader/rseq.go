package loader

import "kprobe/symbols"

// RseqOffset reads how far from the thread pointer the C library has its threads' rseq
// areas (__rseq_offset, glibc 2.35), or says why it has none.
func RseqOffset(space *symbols.Space, mem symbols.Memory) (off int32, why string) {
	const noLibrary = "it has no C library whose threads have rseq areas (glibc 2.35 or later)"
	start, err := ReadStart(space.PID())
	if err != nil {
		return 0, err.Error()
	}
	at := start.Base
	if at == 0 {
		at = start.Entry // the library is in the program
	}
	m := space.ModuleAt(at)
	if m == nil || m.File == nil {
		return 0, noLibrary
	}
	read := func(name string) (uint64, bool) {
		syms := m.File.Lookup(name)
		if len(syms) == 0 {
			return 0, false
		}
		v, err := word(mem, m.Addr(syms[0].Vaddr))
		return v, err == nil
	}
	size, ok := read("__rseq_size")
	if !ok {
		return 0, noLibrary
	}
	if uint32(size) == 0 { // of 32 bits
		return 0, "its C library registers no rseq areas: switched off (GLIBC_TUNABLES, glibc.pthread.rseq=0), or not known to the kernel"
	}
	v, ok := read("__rseq_offset")
	if off = int32(v); !ok || off <= 0 || int64(v) != int64(off) {
		return 0, "its C library's rseq areas are in no place that is known"
	}
	return off, ""
}
