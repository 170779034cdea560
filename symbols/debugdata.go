package symbols

import (
	"cmp"
	"debug/elf"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"kprobe/symbols/debuginfo"
)

// debugState is a file's debug information, or why there is none.
type debugState struct {
	data *debuginfo.Data
	err  error
	alt  string // build-id of a shared part (dwz) that it needs and that is missing; "": none
}

// ReadDebug calls read with the file's debug information: its own, or that of its separate
// debug file. If there is none, the error wraps ErrNoDebugInfo. The information is mapped from
// the file. If the file is cut short meanwhile, or breaks a reader, the error is a
// *FormatError, and what read has produced must not be used. Mappings stay for the life of the
// program.
func (f *File) ReadDebug(read func(*debuginfo.Data) error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer rescue(f.Path, &err)
	s := f.debugData()
	if s.err != nil {
		return s.err
	}
	return read(s.data)
}

func (f *File) debugData() *debugState {
	f.ahead.waits()
	return f.readDebugData(nil)
}

// readDebugData reads the debug information once. a is nil if somebody waits for it.
func (f *File) readDebugData(a *ahead) *debugState {
	f.debug.get(func() (out debugState) {
		out.err = fmt.Errorf("%s: %w", f.Name, ErrNoDebugInfo)
		defer rescue(f.Path, &out.err)
		found := f.debugImage()
		im := found.im
		if found.err != nil {
			out.err = found.err
			return out
		}
		sec, err := im.debugSectionsFor("", a)
		if err != nil {
			out.err = err
			return out
		}
		alt, missing := f.openAlt(im, found.alt)
		out.data, out.alt = debuginfo.New(sec, debuginfo.Options{
			Alt: alt, Open: f.splitOpener(), Later: im.later, Store: f.indexStore(im),
			Release: im.releaser(".debug_info"), ReleaseStr: im.releaser(".debug_str"), IndexFrom: f.found.indexFrom,
		}), missing
		out.err = nil
		return out
	})
	f.debugRead.Store(true)
	return &f.debug.value
}

// debugFile is the image that has a file's debug information, or why there is none.
type debugFile struct {
	im  *image
	alt []byte // its .gnu_debugaltlink
	err error
}

// debugImage returns the image that has the file's debug information: the file's own, or that of its separate
// debug file. If there is none, its error wraps ErrNoDebugInfo.
func (f *File) debugImage() debugFile {
	return f.debugIn.get(func() (out debugFile) {
		out.err = fmt.Errorf("%s: %w", f.Name, ErrNoDebugInfo)
		defer rescue(f.Path, &out.err)
		im := f.im
		if !im.hasDebug() {
			separate, r := f.openDebugImage()
			if separate == nil {
				if other := f.otherBuild.Load(); other != nil {
					out.err = fmt.Errorf("%s: %w", f.Name, other)
				}
				return out
			}
			defer r.Close()
			if !separate.hasDebug() {
				return out
			}
			im = separate
		}
		if _, err := im.mapped(); err != nil {
			out.err = err
			return out
		}
		im.cache = f.found.cacheDir()
		return debugFile{im: im, alt: im.altLink()}
	})
}

// altLink is the section that names the shared part of an image's debug information;
// nil is none.
func (im *image) altLink() []byte {
	link, _ := im.data(im.section(".gnu_debugaltlink")) // a section that can't be read names no file
	return link
}

// hasDebug reports whether an image has debug information of its own.
func (im *image) hasDebug() bool {
	for _, name := range [...]string{".debug_info", ".zdebug_info"} {
		if s := im.section(name); s != nil && s.typ != elf.SHT_NOBITS && s.size > 0 {
			return true
		}
	}
	return false
}

// debugSections reads the sections; suffix is ".dwo" for those of split files.
// Their bytes alias the mapped file, unless they are compressed.
func (im *image) debugSections(suffix string) (debuginfo.Sections, error) {
	return im.debugSectionsFor(suffix, nil)
}

// debugSectionsFor is debugSections. If a isn't nil, nobody waits for the sections yet.
func (im *image) debugSectionsFor(suffix string, a *ahead) (debuginfo.Sections, error) {
	var out debuginfo.Sections
	all, err := im.mapped()
	if err != nil {
		return out, err
	}
	type sized struct {
		name string
		to   *[]byte
		size uint64
	}
	var list []sized
	for name, to := range map[string]*[]byte{
		"info": &out.Info, "types": &out.Types, "abbrev": &out.Abbrev, "aranges": &out.Aranges,
		"str": &out.Str, "line_str": &out.LineStr, "str_offsets": &out.StrOffsets, "addr": &out.Addr,
		"line": &out.Line, "ranges": &out.Ranges, "rnglists": &out.RngLists, "loc": &out.Loc,
		"loclists": &out.LocLists,
	} {
		if suffix == "" && isLater(name) {
			continue
		}
		w := sized{name: name + suffix, to: to}
		if s := im.debugHeader(w.name); s != nil {
			w.size = s.size
		}
		list = append(list, w)
	}
	// Sections may have to be unpacked. The largest takes longest, so it comes first.
	slices.SortFunc(list, func(a, b sized) int { return cmp.Or(cmp.Compare(b.size, a.size), cmp.Compare(a.name, b.name)) })
	var wait sync.WaitGroup
	var mu sync.Mutex // of err
	var next atomic.Int32
	workers := min(runtime.GOMAXPROCS(0), len(list))
	for w := range workers {
		wait.Go(func() {
			defer a.taken()
			if w == workers-1 && w > 0 {
				a.leaveCPU()
			}
			for i := int(next.Add(1)) - 1; i < len(list); i = int(next.Add(1)) - 1 {
				var broke error
				func() {
					defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
					defer rescue(im.path, &broke)
					*list[i].to, broke = im.debugSection(all, list[i].name)
				}()
				if broke != nil {
					mu.Lock()
					err = broke
					mu.Unlock()
				}
			}
		})
	}
	wait.Wait()
	if err != nil {
		return out, err
	}
	if out.CUIndex, err = im.debugSection(all, "cu_index"); err != nil {
		return out, err
	}
	if out.TUIndex, err = im.debugSection(all, "tu_index"); err != nil {
		return out, err
	}
	return out, nil
}

// isLater reports whether a section is read only when it is first needed.
func isLater(name string) bool { return name == "loc" || name == "loclists" }

// later reads such a section, or .debug_frame; nil if it is damaged.
func (im *image) later(name string) []byte {
	var err error
	defer rescue(im.path, &err)
	all, err := im.mapped()
	if err != nil {
		return nil
	}
	b, err := im.debugSection(all, name)
	if err != nil {
		return nil
	}
	return b
}

// debugHeader is the header of a section of debug information, or nil.
func (im *image) debugHeader(name string) *section {
	return cmp.Or(im.section(".debug_"+name), im.section(".zdebug_"+name))
}

func (im *image) debugSection(all []byte, name string) ([]byte, error) {
	s := im.debugHeader(name)
	if s == nil {
		return nil, nil
	}
	if b := im.severally(all, s.name); b != nil {
		return b, nil
	}
	if s.typ == elf.SHT_NOBITS || s.size == 0 {
		return nil, nil
	}
	if !s.packed() {
		if uint64(s.off) > uint64(len(all)) || s.size > uint64(len(all))-uint64(s.off) {
			return nil, im.bad("section "+s.name, "reaches past the end of the file")
		}
		return all[s.off : uint64(s.off)+s.size : uint64(s.off)+s.size], nil
	}
	im.mu.Lock()
	early := im.early[s.name]
	im.mu.Unlock()
	if early != nil {
		return early, nil
	}
	return im.unpack(s.name)
}

// severally returns the contents of all sections with a name, one after the other. A .dwo file has one for each
// type unit, because no linker has joined them. It returns nil if there is only one, or one is compressed.
func (im *image) severally(all []byte, name string) []byte {
	if !strings.HasSuffix(name, ".dwo") {
		return nil
	}
	var out []byte
	n := 0
	for i := range im.sections {
		s := &im.sections[i]
		if s.name != name || s.typ == elf.SHT_NOBITS {
			continue
		}
		if s.packed() || uint64(s.off) > uint64(len(all)) || s.size > uint64(len(all))-uint64(s.off) || uint64(len(out))+s.size > uint64(len(all)) {
			return nil
		}
		out = append(out, all[s.off:uint64(s.off)+s.size]...)
		n++
	}
	if n < 2 {
		return nil
	}
	return out
}

// packed reports whether a section is compressed.
func (s *section) packed() bool { return s.flags&elf.SHF_COMPRESSED != 0 || s.name[1] == 'z' }

// mapped returns the whole file, mapped.
func (im *image) mapped() ([]byte, error) {
	switch r := im.r.(type) {
	case memoryFile:
		return r.all, nil
	case *os.File:
		if im.whole != nil {
			return im.whole, nil
		}
		if im.size > 0 && int64(int(im.size)) == im.size {
			b, err := mapWhole(r, int(im.size))
			if err == nil {
				im.whole = b
				return b, nil
			}
		}
	}
	b := make([]byte, im.size)
	if _, err := im.r.ReadAt(b, 0); err != nil {
		return nil, fmt.Errorf("read %q: %w", im.path, err)
	}
	return b, nil
}

// openAlt opens the file to which dwz has moved what several files share: by its name in .gnu_debugaltlink, or by
// the build-id there. If it can't be found, missing is the build-id.
func (f *File) openAlt(of *image, link []byte) (data *debuginfo.Data, missing string) {
	if link == nil {
		return nil, ""
	}
	name := cString(link, 0)
	id := hex.EncodeToString(link[min(len(name)+1, len(link)):])
	if name == "" || len(id) < 4 {
		return nil, ""
	}
	path, root := name, f.found.root
	if !filepath.IsAbs(name) {
		from, below := strings.CutPrefix(of.path, root)
		if !below && of != f.im {
			root = "" // Cache.DebugDir's
		}
		path = filepath.Join(filepath.Dir(from), name)
	}
	if data := altData(openImage(root, path)); data != nil && data.id == id {
		return data.Data, ""
	}
	if data := altData(f.found.installed(buildIDPath(id))); data != nil && data.id == id {
		return data.Data, ""
	}
	if data := altData(f.found.openFetched(id)); data != nil {
		return data.Data, ""
	}
	return nil, id
}

// altFile is a shared part, and its build-id.
type altFile struct {
	*debuginfo.Data
	id string
}

func altData(im *image, r io.Closer) *altFile {
	if im == nil {
		return nil
	}
	defer r.Close() // the mapping stays
	sec, err := im.debugSections("")
	if err != nil {
		return nil
	}
	// No index, because an index omits entries that only other files refer to.
	return &altFile{debuginfo.New(sec, debuginfo.Options{IndexFrom: math.MaxInt}), im.buildID()}
}

// splitOpener finds the .dwo files that a file's units refer to: in a package
// beside the file, where the compiler put them, or beside the file. Each is
// opened once.
func (f *File) splitOpener() func(debuginfo.SplitRef) *debuginfo.Data {
	var pkg lazy[*debuginfo.Package]
	return func(ref debuginfo.SplitRef) *debuginfo.Data {
		p := pkg.get(func() *debuginfo.Package {
			for _, root := range [...]string{f.found.root, ""} {
				if sec, ok := splitSections(root, f.Path+".dwp"); ok {
					if p, ok := debuginfo.NewPackage(sec); ok {
						return p
					}
				}
			}
			return nil
		})
		if p != nil {
			if d := p.Unit(ref.ID); d != nil {
				return d
			}
		}
		name := ref.Name
		if !filepath.IsAbs(name) {
			name = filepath.Join(ref.CompDir, name)
		}
		for _, path := range [...]string{name, filepath.Join(filepath.Dir(f.Path), filepath.Base(name))} {
			if sec, ok := splitSections(f.found.root, path); ok {
				return debuginfo.New(sec, debuginfo.Options{Split: true})
			}
		}
		return nil
	}
}

func splitSections(root, path string) (debuginfo.Sections, bool) {
	im, r := openImage(root, path)
	if im == nil {
		return debuginfo.Sections{}, false
	}
	defer r.Close() // the mapping stays
	sec, err := im.debugSections(".dwo")
	return sec, err == nil && sec.Info != nil
}
