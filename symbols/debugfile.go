package symbols

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"github.com/ulikunitz/xz"

	"kprobe/symbols/debuginfod"
)

// debugDir is where distributions install separate debug files (GDB manual,
// "Debugging Information in Separate Files").
const debugDir = "/usr/lib/debug"

// maxMiniDebug bounds the unpacked size in bytes of a .gnu_debugdata section.
const maxMiniDebug = 256 << 20

// finder says where the separate debug files of a file are looked for.
type finder struct {
	root    string // what stands before absolute paths: /proc/PID/root, or ""
	debug   string // instead of debugDir; not below root
	fetched *debuginfod.Config

	index     string // the folder of indexes; "" is the user's
	indexFrom int    // debuginfo.Options.IndexFrom
}

// dir is where debug files are installed, as a path that can be opened.
func (d finder) dir() string {
	if d.debug != "" {
		return d.debug
	}
	return d.root + debugDir
}

// debugTable is the symbol table of the file's separate debug file, or nil.
func (f *File) debugTable() *table {
	im, r := f.openDebugImage()
	if im == nil {
		return nil
	}
	defer r.Close()
	t, err := im.readTable(elf.SHT_SYMTAB)
	if err != nil {
		return nil
	}
	return t
}

// openDebugImage finds the separate debug file: by the build-id, which it must
// share, or by the name in .gnu_debuglink, whose checksum it must have; last
// among what debuginfod servers sent before.
func (f *File) openDebugImage() (*image, io.Closer) {
	if id := f.BuildID; len(id) > 2 {
		if im, r := openImage(f.found.dir() + buildIDPath(id)); im != nil {
			if im.buildID() == id {
				return im, r
			}
			r.Close()
		}
	}
	if im, r := f.openLinked(); im != nil {
		return im, r
	}
	return f.found.openFetched(f.BuildID)
}

// openLinked finds the file that .gnu_debuglink names.
func (f *File) openLinked() (*image, io.Closer) {
	link, err := f.im.data(f.im.section(".gnu_debuglink"))
	if err != nil || len(link) < 8 {
		return nil, nil
	}
	name := cString(link, 0)
	if name == "" || name != filepath.Base(name) {
		return nil, nil
	}
	sum := binary.LittleEndian.Uint32(link[len(link)-4:])
	dir := filepath.Dir(f.Path)
	for _, d := range [...]string{f.found.root + dir, f.found.root + filepath.Join(dir, ".debug"), f.found.dir() + dir} {
		im, r := openImage(filepath.Join(d, name))
		if im == nil {
			continue
		}
		h := crc32.NewIEEE()
		if _, err := io.Copy(h, io.NewSectionReader(im.r, 0, im.size)); err == nil && h.Sum32() == sum {
			return im, r
		}
		r.Close()
	}
	return nil, nil
}

// buildIDPath is where, below a directory of debug files, the one with a
// build-id is.
func buildIDPath(id string) string { return "/.build-id/" + id[:2] + "/" + id[2:] + ".debug" }

func openImage(path string) (*image, io.Closer) {
	r, err := os.Open(path)
	if err != nil {
		return nil, nil
	}
	st, err := r.Stat()
	if err != nil || !st.Mode().IsRegular() {
		r.Close()
		return nil, nil
	}
	im, err := parseImage(path, r, st.Size())
	if err != nil {
		r.Close()
		return nil, nil
	}
	return im, r
}

// miniTable is the symbol table inside .gnu_debugdata, an xz-compressed ELF
// file that some distributions leave in stripped files, or nil.
func (f *File) miniTable() *table {
	packed, err := f.im.data(f.im.section(".gnu_debugdata"))
	if err != nil || packed == nil {
		return nil
	}
	r, err := xz.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil
	}
	b, err := io.ReadAll(io.LimitReader(r, maxMiniDebug+1))
	if err != nil || len(b) > maxMiniDebug {
		return nil
	}
	im, err := parseImage(f.Path+" (.gnu_debugdata)", bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil
	}
	t, err := im.readTable(elf.SHT_SYMTAB)
	if err != nil {
		return nil
	}
	return t
}
