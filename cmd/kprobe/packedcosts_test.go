package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"kprobe/internal/fixture"
)

// BenchmarkPackedDebugInfo is how long the first answer of a large program takes whose debug information is
// compressed, beside gdb: the parameters of a function. KPROBE_BENCH_UNITS is how many units it has (each has
// 0.9 MB, unpacked; 570 have 511 MB). What kprobe keeps of a file is thrown away before each answer.
func BenchmarkPackedDebugInfo(b *testing.B) {
	units := 10
	if n, err := strconv.Atoi(os.Getenv("KPROBE_BENCH_UNITS")); err == nil {
		units = n
	}
	plain := manyUnitsOf(b, units)
	gdb := fixture.NeedTool(b, "gdb")
	for _, form := range []string{"none", "zlib", "zstd"} {
		b.Run(form, func(b *testing.B) {
			prog := plain + "." + form
			if out, err := exec.Command(fixture.NeedTool(b, "objcopy"), "--compress-debug-sections="+form, plain, prog).CombinedOutput(); err != nil {
				b.Skipf("objcopy: %v: %s", err, out)
			}
			kprobe, peer := time.Duration(0), time.Duration(0)
			for b.Loop() {
				cache := b.TempDir()
				show := exec.Command(program(b), "show", "-x", prog, "--vars", "app_1000::work_1000")
				show.Env = append(os.Environ(), "XDG_CACHE_HOME="+cache)
				kprobe = leastOf(kprobe, answer(b, show, "text"))
				peer = leastOf(peer, answer(b, exec.Command(gdb, "-nx", "-batch", "-ex", "info scope app_1000::work_1000", prog), "text"))
				if err := os.RemoveAll(cache); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(kprobe.Seconds(), "kprobe-s")
			b.ReportMetric(peer.Seconds(), "gdb-s")
			b.ReportMetric(peer.Seconds()/kprobe.Seconds(), "gdb/kprobe")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// leastOf is the shorter of two times; 0 is none.
func leastOf(a, b time.Duration) time.Duration {
	if a == 0 {
		return b
	}
	return min(a, b)
}

// answer is how long a command takes whose output has a word.
func answer(b *testing.B, cmd *exec.Cmd, word string) time.Duration {
	b.Helper()
	from := time.Now()
	out, err := cmd.CombinedOutput()
	took := time.Since(from)
	if err != nil || !strings.Contains(string(out), word) {
		b.Fatalf("%v: %v: %s", cmd, err, out)
	}
	return took
}

// manyUnitsOf is a program of many_units.cc with so many units. It is compiled once, and assembled with each
// unit's number.
func manyUnitsOf(b *testing.B, units int) string {
	b.Helper()
	dir := b.TempDir()
	run := func(stdin string, words ...string) {
		b.Helper()
		cmd := exec.Command(fixture.NeedTool(b, words[0]), words[1:]...)
		cmd.Dir, cmd.Stdin = dir, strings.NewReader(stdin)
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v: %v: %s", cmd, err, out)
		}
	}
	run("", "g++", "-std=c++17", "-g", "-O0", "-S", "-o", "unit.s", filepath.Join(fixture.Root(), "testdata/many_units.cc"))
	text, err := os.ReadFile(filepath.Join(dir, "unit.s"))
	if err != nil {
		b.Fatal(err)
	}
	var calls strings.Builder
	link := []string{"g++", "-o", "prog", "-Wl,--build-id", "main.o"}
	for i := range units {
		name := strconv.Itoa(1000 + i)
		run(strings.ReplaceAll(string(text), "_UNIT", "_"+name), "as", "-o", name+".o", "-")
		fmt.Fprintf(&calls, "int entry_%s(int);\nstatic int call_%s = entry_%s(1);\n", name, name, name)
		link = append(link, name+".o")
	}
	run(calls.String()+"int main() { return 0; }\n", "g++", "-x", "c++", "-c", "-o", "main.o", "-")
	run("", link...)
	return filepath.Join(dir, "prog")
}
