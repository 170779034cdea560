package metrics

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

// File is a file that is replaced as a whole each time: who reads it reads one moment,
// whenever that is.
type File struct {
	name   string
	format expfmt.Format
	gather prometheus.Gatherer
}

// ErrIrregular is wrapped where something is there that is no regular file: it would be
// replaced by one.
var ErrIrregular = errors.New("it is not a regular file, and would be replaced by one")

// NewFile makes a file of a collector's numbers: in the text format of Prometheus where
// the name ends with .prom, as node_exporter reads it, else in OpenMetrics. It writes the first
// time: an error is known before anything else is done. The errors are those of writing,
// and ErrIrregular.
func NewFile(name string) (*File, error) {
	f := &File{name: name, format: expfmt.NewFormat(expfmt.TypeOpenMetrics)}
	if strings.HasSuffix(name, ".prom") {
		f.format = expfmt.NewFormat(expfmt.TypeTextPlain)
	}
	return f, f.replace(nil)
}

// Of says whose numbers are written.
func (f *File) Of(c *Collector) error {
	r := prometheus.NewRegistry()
	f.gather = r
	return r.Register(c)
}

// Write replaces the file by the numbers of now.
func (f *File) Write() error {
	families, err := f.gather.Gather()
	if err != nil {
		return fmt.Errorf("write %s: %w", f.name, err)
	}
	var b strings.Builder
	to := expfmt.NewEncoder(&b, f.format)
	for _, family := range families {
		if err := to.Encode(family); err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
	}
	if end, ok := to.(expfmt.Closer); ok {
		if err := end.Close(); err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
	}
	return f.replace([]byte(b.String()))
}

// replace writes a file of another name in the same folder, which takes the name then.
// nil only tries whether that can be done.
func (f *File) replace(text []byte) (err error) {
	switch was, err := os.Lstat(f.name); {
	case err == nil && !was.Mode().IsRegular():
		return fmt.Errorf("write %s: %w", f.name, ErrIrregular)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(f.name), "."+filepath.Base(f.name)+".*")
	var path *fs.PathError
	if errors.As(err, &path) {
		err = &fs.PathError{Op: "write", Path: f.name, Err: path.Err} // the name is nobody's else
	}
	if err != nil {
		return err
	}
	defer func() {
		if err != nil || text == nil {
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}()
	if err = tmp.Chmod(0o644); err == nil { // other users read it
		_, err = tmp.Write(text)
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err != nil || text == nil {
		return err
	}
	return os.Rename(tmp.Name(), f.name)
}
