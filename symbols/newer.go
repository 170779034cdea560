package symbols

import (
	"os"
	"path/filepath"
)

// NewerSource returns the source file of the code at a site if it was written to after the module was built: its lines
// may differ from those that were compiled. It returns "" if the source file is older, isn't on this
// machine, or isn't known. It reads the file's time, which may take as long as the file system takes.
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
