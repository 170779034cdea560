package symbols

import (
	"os"
	"path/filepath"
)

// NewerSource names the source file of the code at a site if it was written after
// the module's file: its lines may be others than those that were compiled. ""
// is none: it is older, isn't on this machine, or nobody knows it. It looks at
// the file's time, which may take as long as its file system takes.
func (s *Space) NewerSource(site Site) string {
	if site.Module == nil {
		return ""
	}
	r, ok := site.Module.File.im.r.(*os.File)
	if !ok {
		return ""
	}
	built, err := r.Stat()
	if err != nil {
		return ""
	}
	file, _, ok := s.Source(site.Addr)
	if !ok || !filepath.IsAbs(file) {
		return ""
	}
	source, err := os.Stat(s.root() + file)
	if err != nil || !source.Mode().IsRegular() || !source.ModTime().After(built.ModTime()) {
		return ""
	}
	return file
}
