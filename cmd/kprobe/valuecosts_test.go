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
// parameters by debug information, a text of 32 bytes, a vector of 8 ints. The ring is small, so
// that all but the first turns use memory that has been used.
func BenchmarkValues(b *testing.B) {
	prog := fixture.Build(b, "values_costs.cc", "-g", "-O2")
	without, _ := costsOf(b, exec.Command(prog))
	least := map[string]float64{}
	for b.Loop() {
		with, said := costsOf(b, exec.Command(program(b), "trace", "--ring", "1M", "-o", os.DevNull,
			"p plain %di %si", "p named a b", "p text s", "p ints v", "--", prog))
		if !strings.Contains(said, " 800000 events, 0 lost") {
			b.Logf("a run that doesn't count, as hits are cheaper that are lost: %s", said)
			continue
		}
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

// costsOf is what the program prints of its costs, and what kprobe says.
func costsOf(b *testing.B, cmd *exec.Cmd) (costs map[string]float64, said string) {
	b.Helper()
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		b.Fatalf("%v: %s", err, errs.String())
	}
	costs = map[string]float64{}
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		name, text, _ := strings.Cut(s.Text(), " ")
		if costs[name], err = strconv.ParseFloat(text, 64); err != nil {
			b.Fatal(err)
		}
	}
	return costs, errs.String()
}
