package main

import (
	"os/exec"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// TestCompletionOfLargeFiles says that a shell gets the symbols of a large file.
func TestCompletionOfLargeFiles(t *testing.T) {
	kprobe, node := program(t), fixture.NeedTool(t, "node")
	libc := fixture.NeedFile(t, "/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6", "/usr/lib/libc.so.6")
	for _, c := range []struct{ args, want string }{
		{"-x " + node + " uv_fs_r", "uv_fs_read\n"},
		{"-x " + libc + " opendi", "opendir\n"},
		{"-x " + node + " no_such_symbol", ""},
	} {
		cmd := exec.Command(kprobe, append([]string{"__complete", "trace"}, strings.Fields(c.args)...)...)
		if out, err := cmd.Output(); err != nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: %v, %s", c.args, err, out)
		}
	}
}
