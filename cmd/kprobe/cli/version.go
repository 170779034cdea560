package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"kprobe/output"
)

// Version is the version of this source tree (semantic versioning; see
// CHANGELOG.md).
const Version = "0.9.0"

// Revision is the commit that the binary was built from. make build sets it by
// the linker; "" is what go build has noted, if it has.
var Revision string

// versionLine is what --version prints: kprobe VERSION (REVISION, GO).
func versionLine() string {
	return fmt.Sprintf("kprobe %s (%s, %s)\n", Version, revision(), runtime.Version())
}

// revision names the commit, "unknown revision" where nothing tells it.
func revision() string {
	if Revision != "" {
		return Revision
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown revision"
	}
	commit, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) > 12:
			commit = s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if commit == "" {
		return "unknown revision"
	}
	return commit + dirty
}

// runVersion prints the version and, if verbose, what this machine has.
func runVersion(d *Deps, verbose bool) error {
	w := output.NewWriter(d.Out)
	text := []byte(versionLine())
	if verbose {
		for _, f := range d.Proc.Machine() {
			text = output.AppendFact(text, &f)
		}
	}
	_, err := w.Write(text)
	return closed(w, err)
}
