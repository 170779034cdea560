package procfs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Frozen gives the folder of the cgroup that freezes a process (cgroups(7)): its own or one above. It gives ""
// if none does, and if that can't be known, as in a container that doesn't see the folder.
func Frozen(pid int) string {
	groups, err := os.ReadFile(Process(pid).Path("cgroup"))
	if err != nil {
		return ""
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	for _, f := range freezers(string(groups), string(mounts)) {
		for dir := f.dir; ; dir = filepath.Dir(dir) {
			if text, err := os.ReadFile(filepath.Join(dir, f.file)); err == nil && strings.TrimSpace(string(text)) == "1" {
				return dir
			}
			if dir == f.top {
				break
			}
		}
	}
	return ""
}

// freezer is a folder of a process's cgroup, under a mounted hierarchy's top, and the file that says whether this
// cgroup is to be frozen.
type freezer struct{ top, dir, file string }

// freezers finds the cgroups of a process that can freeze it: in version 2's hierarchy, and in version 1's of
// the controller freezer.
func freezers(groups, mounts string) (list []freezer) {
	for line := range strings.Lines(groups) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 {
			continue
		}
		kind, file := "cgroup2", "cgroup.freeze"
		if f[1] != "" {
			kind, file = "cgroup", "freezer.self_freezing"
		}
		if f[1] != "" && !hasOption(f[1], "freezer") {
			continue
		}
		for mount := range strings.Lines(mounts) {
			// ID PARENT DEVICE ROOT MOUNTPOINT OPTIONS [FIELDS…] - TYPE SOURCE SUPEROPTIONS
			before, after, _ := strings.Cut(mount, " - ")
			m, s := strings.Fields(before), strings.Fields(after)
			if len(m) < 5 || len(s) < 3 || s[0] != kind || f[1] != "" && !hasOption(s[2], "freezer") {
				continue
			}
			under, ok := below(f[2], m[3])
			if ok && !strings.ContainsRune(m[4], '\\') {
				list = append(list, freezer{top: m[4], dir: filepath.Join(m[4], under), file: file})
			}
		}
	}
	return list
}

func hasOption(list, name string) bool { return slices.Contains(strings.Split(list, ","), name) }

// below gives a cgroup's path from the root of a mount. ok is false for a cgroup outside.
func below(group, root string) (path string, ok bool) {
	if strings.Contains(group+"/", "/../") {
		return "", false
	}
	if root == "/" {
		return group, true
	}
	path, ok = strings.CutPrefix(group+"/", root+"/")
	return path, ok
}
