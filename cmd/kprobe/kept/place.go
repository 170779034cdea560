package kept

import (
	"errors"
	"path/filepath"
)

// Variable is the environment variable that names the file.
const Variable = "KPROBE_EVENTS"

// ErrNoHome says that there is no place for the file.
var ErrNoHome = errors.New("no place for kept definitions: neither KPROBE_EVENTS nor XDG_STATE_HOME nor HOME is set")

// Path gives the file of an environment: $KPROBE_EVENTS, else kprobe/events in
// the folder that the XDG base directory specification has for state. The file
// need not exist. Its error is ErrNoHome.
func Path(getenv func(string) string) (string, error) {
	if p := getenv(Variable); p != "" {
		return filepath.Abs(p)
	}
	// The specification: a path that is not absolute is to be ignored.
	if dir := getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "kprobe", "events"), nil
	}
	if home := getenv("HOME"); home != "" {
		return filepath.Join(home, ".local", "state", "kprobe", "events"), nil
	}
	return "", ErrNoHome
}
