package assess

import (
	"bytes"
	"strings"
	"sync"

	"kprobe/symbols"
)

// In names what may walk a process's stacks by the return addresses on them,
// to unwind or to collect garbage; "" if nothing can. The module that a program loads later is not foreseen:
// glibc's pthread_exit and pthread_cancel load libgcc_s, and where it finds no
// way past a return trampoline they end the thread as if its stack ended there, which
// is right in a program that had no handlers to call.
func (u *Unwinders) In(space *symbols.Space) string {
	for _, m := range space.Modules() {
		for _, lib := range [...]string{"libgcc_s.", "libunwind", "libstdc++", "libc++", "libasan", "libtsan"} {
			if strings.HasPrefix(m.Name, lib) {
				return m.Name
			}
		}
		if m.File == nil || strings.HasPrefix(m.Name, "libc.") || strings.HasPrefix(m.Name, "ld-") || strings.HasPrefix(m.Name, "libpthread") {
			continue // glibc's own cleanups need none
		}
		if u.file(m.File) {
			return m.Name
		}
	}
	return ""
}

// Unwinders remembers of files whether they unwind stacks: a name that isn't
// there takes the longer to find the more names there are. The zero value is
// ready. It is safe for concurrent use.
type Unwinders struct {
	mu    sync.Mutex
	files map[*symbols.File]bool
}

// ocamlRuntime is an environment variable that OCaml's runtime reads, stripped or
// not. Its collector looks each return address up in its frame tables
// (runtime/stack_nat.c, backtrace_nat.c), and follows null where it isn't there.
const ocamlRuntime = "CAMLRUNPARAM"

// file reports whether a file has an unwinder, landing pads of exceptions (some
// unwinder must be there for them), or OCaml's runtime.
func (u *Unwinders) file(f *symbols.File) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	has, known := u.files[f]
	if known {
		return has
	}
	has = len(f.Lookup("_Unwind_RaiseException")) > 0
	if !has {
		_, _, has = f.SectionData(".gcc_except_table")
	}
	if !has {
		data, _, ok := f.SectionData(".rodata")
		has = ok && bytes.Contains(data, []byte(ocamlRuntime))
	}
	if u.files == nil {
		u.files = map[*symbols.File]bool{}
	}
	u.files[f] = has
	return has
}
