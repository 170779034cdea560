package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

const repair = "run: go run ./internal/gendocs"

func TestGeneratedFilesAreFresh(t *testing.T) {
	files, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(fixture.Root(), name))
		if err != nil {
			t.Errorf("%v; %s", err, repair)
			continue
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is stale; %s", name, repair)
		}
	}
	for _, dir := range []string{"man", "completions"} {
		entries, err := os.ReadDir(filepath.Join(fixture.Root(), dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if _, made := files[dir+"/"+e.Name()]; !made {
				t.Errorf("%s/%s belongs to no command: remove it", dir, e.Name())
			}
		}
	}
}

func TestEveryProseFileIsUsed(t *testing.T) {
	files, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	entries, err := prose.ReadDir("prose")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), ".txt")
		page := "man/kprobe-" + name + ".1"
		if name == "kprobe" {
			page = "man/kprobe.1"
		}
		if files[page] == nil {
			t.Errorf("prose/%s belongs to no page", e.Name())
		}
	}
}

func TestRoff(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"paragraphs", "one\ntwo\n\nthree", ".PP\none\ntwo\n.PP\nthree\n"},
		{"verbatim", "see:\n\n  a  b\n   c\n\nafter", ".PP\nsee:\n.PP\n.RS 4\n.nf\na  b\n c\n.fi\n.RE\n.PP\nafter\n"},
		{"verbatim at the end", "  x", ".PP\n.RS 4\n.nf\nx\n.fi\n.RE\n"},
		{"section", "# FILES\ntext", ".SH FILES\ntext\n"},
		{"list", "-x :: first\nmore", ".TP\n\\fB\\-x\\fR\nfirst\nmore\n"},
		{"requests are text", ".TH x\n'quoted'", ".PP\n\\&.TH x\n\\&\\(aqquoted\\(aq\n"},
		{"escapes", `a\b -- c^`, ".PP\na\\eb \\-\\- c\\(ha\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var b bytes.Buffer
			body(&b, tt.in)
			if b.String() != tt.want {
				t.Errorf("got\n%s\nwant\n%s", b.String(), tt.want)
			}
		})
	}
}

func TestPagesAreCleanRoff(t *testing.T) {
	man := fixture.NeedTool(t, "man")
	files, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if !strings.HasPrefix(name, "man/") {
			continue
		}
		path := filepath.Join(t.TempDir(), filepath.Base(name))
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(man, "--warnings", "-l", path)
		cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "MANWIDTH=80", "MANPAGER=cat")
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil || errs.Len() > 0 {
			t.Errorf("%s: %v\n%s", name, err, &errs)
		}
		if !bytes.Contains(out, []byte("SEE ALSO")) {
			t.Errorf("%s: cut short", name)
		}
	}
}
