package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"kprobe/internal/fixture"
)

// BenchmarkTrace traces a program that calls a function as often as it can, and
// one that does 200,000 times a second, for a second each, into a file. It
// reports lines written by a second of kprobe's own computing, all its
// processes together, from the rings to the file, and which part of the hits
// was lost.
func BenchmarkTrace(b *testing.B) {
	kprobe, prog := program(b), fixture.Build(b, "cli_rate.c", "-O2")
	lost := regexp.MustCompile(`(\d+) events?, (\d+) lost`)
	for _, c := range []struct{ name, format, rate string }{
		{"text", "text", "0"}, {"json", "json", "0"}, {"text at 200000", "text", "200000"},
	} {
		b.Run(c.name, func(b *testing.B) {
			var lines, gone, seconds float64
			for b.Loop() {
				subject := exec.Command(prog, c.rate, "3")
				out, err := subject.StdoutPipe()
				if err != nil {
					b.Fatal(err)
				}
				if err := subject.Start(); err != nil {
					b.Fatal(err)
				}
				if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
					b.Fatal(err)
				}
				var said bytes.Buffer
				cmd := exec.Command(kprobe, "trace", "-t", "1s", "--format", c.format, "-o", filepath.Join(b.TempDir(), "out"),
					"-p", fmt.Sprint(subject.Process.Pid), "p:w work n=$arg1:s64 s=+0($arg2):string")
				cmd.Stderr = &said
				if err := cmd.Run(); err != nil {
					b.Fatalf("%v: %s", err, said.String())
				}
				_ = subject.Process.Kill()
				_ = subject.Wait()
				m := lost.FindStringSubmatch(said.String())
				if m == nil {
					b.Fatalf("it said %q", said.String())
				}
				for i, sum := range []*float64{&lines, &gone} {
					n, err := strconv.ParseFloat(m[i+1], 64)
					if err != nil {
						b.Fatal(err)
					}
					*sum += n
				}
				seconds += (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
			}
			b.ReportMetric(lines/seconds, "lines/cpu-s")
			b.ReportMetric(100*gone/(lines+gone), "%lost")
			b.ReportMetric(0, "ns/op")
		})
	}
}
