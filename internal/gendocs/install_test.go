package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"kprobe/internal/fixture"
)

// TestInstall runs make install and make uninstall with a program that says it
// is kprobe: install builds nothing, so root needs no Go, and uninstall leaves
// no file behind.
func TestInstall(t *testing.T) {
	fixture.NeedTool(t, "make")
	dir := t.TempDir()
	for _, name := range []string{"man", "completions", "Makefile", "cmd"} {
		if err := os.Symlink(filepath.Join(fixture.Root(), name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	dest := filepath.Join(dir, "dest")
	run := func(goal string) ([]byte, error) {
		c := exec.Command("make", goal, "DESTDIR="+dest, "GO=false")
		c.Dir = dir
		return c.CombinedOutput()
	}
	if out, err := run("install"); err == nil {
		t.Fatalf("it installed a kprobe that is not there:\n%s", out)
	}
	if err := os.WriteFile(filepath.Join(dir, "kprobe"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := run("install"); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	got := installed(t, dest)
	for _, want := range []string{"usr/local/bin/kprobe", "usr/local/share/man/man5/kprobe-events.5", "usr/local/share/zsh/site-functions/_kprobe"} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is not installed: %q", want, got)
		}
	}
	if out, err := run("uninstall"); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	if left := installed(t, dest); len(left) > 0 {
		t.Errorf("uninstall leaves %q", left)
	}
}

// installed lists the files below a folder.
func installed(t *testing.T, root string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, rerr := filepath.Rel(root, path)
			files = append(files, rel)
			return rerr
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
