//go:build linux && amd64

package tracee

import (
	"bytes"
	"fmt"

	"kprobe/internal/procfs"
	"kprobe/internal/untrusted"
	"kprobe/symbols"
)

// Before SetScratch, injected calls run from the unused bytes after a loaded segment's last
// instruction, and put back what was there. A tracer that is killed in the middle leaves its
// code there. No program executes it, but the text differs from the file.

// Injected finds injected code that a killed tracer left in the process's padding, and what the
// file has there, or zeros at the end of the vDSO. The process need not be stopped. ok is false if nothing was left. The answer
// is a snapshot: the call of a living tracer looks the same.
func Injected(pid int) (at symbols.Addr, original []byte, ok bool) {
	p := &Process{pid: pid}
	defer p.closeMem()
	maps, err := readMaps(pid)
	if err != nil {
		return 0, nil, false
	}
	var r room
	have := make([]byte, len(InjectedCode()))
	if !p.findPadding(&r, maps) {
		return 0, nil, false
	}
	if _, err := p.ReadMemory(have, symbols.Addr(r.code)); err != nil || !bytes.Equal(have, InjectedCode()) {
		return 0, nil, false
	}
	for i := range maps {
		m := &maps[i]
		at := symbols.Addr(r.code)
		if !m.Contains(at) {
			continue
		}
		if m.Path == "[vdso]" {
			return at, r.saved, true
		}
		original, err := fileBytes(pid, m, at, len(have))
		if err != nil || bytes.Equal(original, have) {
			return 0, nil, false
		}
		return at, original, true
	}
	return 0, nil, false
}

// fileBytes reads what the file of a mapping has for an address. After the file's end a page is
// zeros.
func fileBytes(pid int, m *symbols.Mapping, at symbols.Addr, n int) ([]byte, error) {
	f, _, err := untrusted.Open(procfs.Process(pid).Path(fmt.Sprintf("map_files/%x-%x", uint64(m.Start), uint64(m.End))))
	if err != nil {
		if f, _, err = untrusted.OpenIn(procfs.Process(pid).Path("root"), m.Path); err != nil {
			return nil, err
		}
	}
	defer f.Close()
	b := make([]byte, n)
	off := uint64(m.Off) + uint64(at-m.Start)
	if n, err := f.ReadAt(b, int64(off)); err != nil && n == 0 {
		if st, serr := f.Stat(); serr != nil || uint64(st.Size()) > off {
			return nil, err
		}
	}
	return b, nil
}
