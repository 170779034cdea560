package symbols

import (
	"bytes"
	"runtime/debug"
	"slices"
)

// mayHaveSource reports whether the file's debug information can have a source
// file with this last element of its name. To say no takes only the sections
// that line tables have names in, where the others would have to be unpacked.
func (f *File) mayHaveSource(base string) (found bool) {
	if base == "" || f.debugRead.Load() {
		return true
	}
	list := f.sources.get(f.readSources)
	if list == nil {
		return true
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	var broke error
	defer func() { found = found || broke != nil }()
	defer rescue(f.Path, &broke)
	name := append([]byte(base), 0)
	return slices.ContainsFunc(list, func(b []byte) bool { return bytes.Contains(b, name) })
}

// readSources reads the sections that names of source files are in: nil where
// that spares nothing, where they lie elsewhere too (what dwz moved; the name
// that a unit before version 5 has itself is of no row), or can't be read.
func (f *File) readSources() (out [][]byte) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	var broke error
	defer func() {
		if broke != nil {
			out = nil
		}
	}()
	defer rescue(f.Path, &broke)
	in := f.debugImage()
	im := in.im
	if in.err != nil || im.section(".gnu_debugaltlink") != nil {
		return nil
	}
	info := im.section(".debug_info")
	if info == nil {
		info = im.section(".zdebug_info")
	}
	if info == nil || !info.packed() {
		return nil
	}
	all, err := im.mapped()
	if err != nil {
		return nil
	}
	for _, name := range [...]string{"line", "line_str", "str"} {
		b, err := im.debugSection(all, name)
		if err != nil {
			return nil
		}
		im.hold(name, b)
		out = append(out, b)
	}
	return out
}

// hold keeps a section that was unpacked, so that it isn't a second time.
func (im *image) hold(name string, b []byte) {
	im.mu.Lock()
	defer im.mu.Unlock()
	if im.early == nil {
		im.early = map[string][]byte{}
	}
	for _, of := range [...]string{".debug_", ".zdebug_"} {
		if s := im.section(of + name); s != nil && s.packed() && b != nil {
			im.early[s.name] = b
			return
		}
	}
}
