package procfs

import (
	"slices"
	"testing"
)

// The folders in which a process may be frozen are found in all kinds of mounts.
func TestFreezers(t *testing.T) {
	const mounts = `25 1 0:22 / /proc rw - proc proc rw
30 1 0:26 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer
31 1 0:27 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct
32 1 0:28 /system.slice /sys/fs/cgroup/unified rw,relatime shared:4 - cgroup2 cgroup2 rw
33 1 0:28 / /a\040b rw - cgroup2 cgroup2 rw
`
	for _, tt := range []struct {
		groups string
		want   []freezer
	}{
		{"", nil},
		{"4:memory:/x\n1:cpu,cpuacct:/y\n", nil},
		{"6:freezer:/\n", []freezer{{"/sys/fs/cgroup/freezer", "/sys/fs/cgroup/freezer", "freezer.self_freezing"}}},
		{"6:cpu,freezer:/a/b:c\n0::/other\n", []freezer{{"/sys/fs/cgroup/freezer", "/sys/fs/cgroup/freezer/a/b:c", "freezer.self_freezing"}}},
		{"0::/system.slice/x.service\n", []freezer{{"/sys/fs/cgroup/unified", "/sys/fs/cgroup/unified/x.service", "cgroup.freeze"}}},
		{"0::/system.slice\n", []freezer{{"/sys/fs/cgroup/unified", "/sys/fs/cgroup/unified", "cgroup.freeze"}}},
		{"0::/system.slices\n", nil},
		{"0::/../x\n6:freezer:/../..\n", nil},
	} {
		if got := freezers(tt.groups, mounts); !slices.Equal(got, tt.want) {
			t.Errorf("%q: %+v, want %+v", tt.groups, got, tt.want)
		}
	}
}
