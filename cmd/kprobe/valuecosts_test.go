package main

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// BenchmarkValues tells what a probe adds to a call, by what it records: two registers, two
// parameters by debug information, a text of 32 bytes, a vector of 8 ints.
func BenchmarkValues(b *testing.B) {
	prog := fixture.Build(b, "values_costs.cc", "-g", "-O2")
	without := costsOf(b, exec.Command(prog))
	least := map[string]float64{}
	for b.Loop() {
		with := costsOf(b, exec.Command(program(b), "trace", "-q", "--ring", "16M", "-o", os.DevNull,
			"p plain %di %si", "p named a b", "p text s", "p ints v", "--", prog))
		for name, ns := range with {
			if ns -= without[name]; least[name] == 0 || ns < least[name] {
				least[name] = ns
			}
		}
	}
	for name, ns := range least {
		b.ReportMetric(ns, name+"-ns/hit")
	}
	b.ReportMetric(least["named"]/least["plain"], "named/plain")
	b.ReportMetric(least["ints"]/least["text"], "ints/text")
}

func costsOf(b *testing.B, cmd *exec.Cmd) map[string]float64 {
	b.Helper()
	out, err := cmd.Output()
	if err != nil {
		b.Fatal(err)
	}
	costs := map[string]float64{}
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		name, text, _ := strings.Cut(s.Text(), " ")
		if costs[name], err = strconv.ParseFloat(text, 64); err != nil {
			b.Fatal(err)
		}
	}
	return costs
}
