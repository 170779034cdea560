package symbols

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/ulikunitz/xz"

	"kprobe/symbols/debuginfod"
)

// debugDir is where distributions install separate debug files (GDB manual,
// "Debugging Information in Separate Files").
const debugDir = "/usr/lib/debug"

// Bounds on a .gnu_debugdata section, in bytes: what it unpacks to, and how far
// back the unpacker looks for it, which is memory that the section's first bytes
// ask for.
const (
	maxMiniDebug = 256 << 20
	maxMiniDict  = 64 << 20
)

// finder says where separate debug files of a file are searched.
type finder struct {
	root    string // prefix of absolute paths: /proc/PID/root, or ""
	debug   string // replaces debugDir, and is not below root; "": debugDir
	fetched *debuginfod.Config

	index     string // the folder of indexes; "" is the user's
	indexFrom int    // debuginfo.Options.IndexFrom
}

// installed opens a file by its path below the folder of debug files.
func (d finder) installed(path string) (*image, io.Closer) {
	if d.debug != "" {
		return openImage("", d.debug+path)
	}
	return openImage(d.root, debugDir+path)
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

// openDebugImage finds the separate debug file in three ways: by the build-id, which it must have; by the name in
// .gnu_debuglink, whose checksum it must have; and among the files that debuginfod servers have sent
// before. A file of another build is noted and not used.
func (f *File) openDebugImage() (*image, io.Closer) {
	if id := f.BuildID; len(id) > 2 {
		if im, r := f.found.installed(buildIDPath(id)); im != nil {
			if im.buildID() == id {
				return im, r
			}
			f.notes(&OtherBuildError{Path: im.path, Why: "its build-id is " + cmp.Or(im.buildID(), "none") + ", not " + id})
			r.Close()
		}
	}
	if im, r := f.openLinked(); im != nil {
		return im, r
	}
	return f.found.openFetched(f.BuildID)
}

// notes keeps the first debug file that was found and not used.
func (f *File) notes(e *OtherBuildError) { f.otherBuild.CompareAndSwap(nil, e) }

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
	for _, open := range [...]func() (*image, io.Closer){
		func() (*image, io.Closer) { return openImage(f.found.root, filepath.Join(dir, name)) },
		func() (*image, io.Closer) { return openImage(f.found.root, filepath.Join(dir, ".debug", name)) },
		func() (*image, io.Closer) { return f.found.installed(filepath.Join("/", dir, name)) },
	} {
		im, r := open()
		if im == nil {
			continue
		}
		have, ok := im.checksum()
		if ok && have == sum {
			return im, r
		}
		if ok {
			f.notes(&OtherBuildError{Path: im.path, Why: fmt.Sprintf("its checksum is %#08x, not %#08x as .gnu_debuglink says", have, sum)})
		}
		r.Close()
	}
	return nil, nil
}

// checksumTime bounds how long a file is read for its checksum.
const checksumTime = 30 * time.Second

// checksum returns the CRC-32 of the whole file. ok is false if the file has neither symbols nor debug information,
// can't be read, or takes too long to read.
func (im *image) checksum() (sum uint32, ok bool) {
	if !im.hasDebug() && !slices.ContainsFunc(im.sections, func(s section) bool { return s.typ == elf.SHT_SYMTAB }) {
		return 0, false
	}
	h := crc32.NewIEEE()
	b := make([]byte, 1<<20)
	end := time.Now().Add(checksumTime)
	for off := int64(0); off < im.size; off += int64(len(b)) {
		b = b[:min(int64(len(b)), im.size-off)]
		if _, err := im.r.ReadAt(b, off); err != nil || time.Now().After(end) {
			return 0, false
		}
		h.Write(b)
	}
	return h.Sum32(), true
}

// buildIDPath is the path of the debug file with a build-id, below a directory of debug files.
func buildIDPath(id string) string { return "/.build-id/" + id[:2] + "/" + id[2:] + ".debug" }

// openImage opens an ELF file that a program's file leads to, by its path below
// root; nil where there is none.
func openImage(root, path string) (*image, io.Closer) {
	r, info, err := openNamed(root, path)
	if err != nil {
		return nil, nil
	}
	im, err := parseImage(root+path, r, info.Size())
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
	most := min(maxMiniDebug, unpackTo(int64(len(packed))))
	if dict, ok := xzDictionary(packed); !ok || dict > maxMiniDict {
		return nil
	}
	r, err := xz.ReaderConfig{SingleStream: true}.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil
	}
	b, err := io.ReadAll(io.LimitReader(r, most+1))
	if err != nil || int64(len(b)) > most {
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

// xzDictionary is the size in bytes of the dictionary that an xz file's first
// block asks for (The .xz File Format, 3.1 and 5.3.1: LZMA2's property is
// 2 or 3 times a power of two).
func xzDictionary(b []byte) (size int64, ok bool) {
	const streamHeader, blockHeader, lzma2 = 12, 2, 0x21
	if len(b) < streamHeader+blockHeader || b[streamHeader] == 0 {
		return 0, false
	}
	header := b[streamHeader:]
	header = header[:min(len(header), (int(header[0])+1)*4)]
	flags, rest := header[1], header[blockHeader:]
	for _, given := range [...]byte{0x40, 0x80} { // sizes, each a number of 7 bits a byte
		for more := flags&given != 0; more && len(rest) > 0; rest = rest[1:] {
			more = rest[0]&0x80 != 0
		}
	}
	// The filters: number, length of properties, properties.
	for range flags&3 + 1 {
		if len(rest) < 2 || rest[0]&0x80 != 0 || rest[1]&0x80 != 0 || len(rest) < 2+int(rest[1]) {
			return 0, false
		}
		if rest[0] == lzma2 && rest[1] == 1 {
			p := rest[2]
			return int64(2|p&1) << (p/2 + 11), p <= 40
		}
		rest = rest[2+rest[1]:]
	}
	return 0, false
}
