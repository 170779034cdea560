package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestOptionGroups: every visible option of a command is listed, once, and every name
// in the table of groups is an option of some command.
func TestOptionGroups(t *testing.T) {
	known := map[string]bool{}
	for _, c := range New(&Deps{}).Commands() {
		var want, got []string
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			known[f.Name] = true
			if !f.Hidden {
				want = append(want, f.Name)
			}
		})
		groups := Options(c)
		for _, g := range groups {
			if g.Title == "" && len(groups) > 1 || len(g.Options) == 0 {
				t.Errorf("%s: group %q of %d options", c.Name(), g.Title, len(g.Options))
			}
			for _, f := range g.Options {
				got = append(got, f.Name)
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s lists %q, and has %q", c.Name(), got, want)
		}
	}
	for _, g := range groupTitles {
		for _, name := range g.names {
			if !known[name] {
				t.Errorf("%s: no command has --%s", g.title, name)
			}
		}
	}
}

// TestHelpLayout: help has its parts in order, sections behind the options, and no line
// of prose that is wider than a terminal.
func TestHelpLayout(t *testing.T) {
	r := kprobe(t, &fake{}, "", "trace", "--help")
	at := 0
	for _, part := range []string{
		"Puts probes", "\nUsage:\n  kprobe trace [OPTION…] [DEF…", "\nTarget:\n  -p, --pid PID           probe",
		"(default 4096)", "\n      --trigger EVENT:ACTION[:N]\n                          ", "\nHISTOGRAMS\n",
		"\n  :size=N\n      the most", "\nExamples:\n  kprobe trace",
	} {
		i := strings.Index(r.out[at:], part)
		if i < 0 {
			t.Fatalf("%q is missing, or not where it belongs:\n%s", part, r.out)
		}
		at += i
	}
	if strings.Contains(r.out, " :: ") || strings.Contains(r.out, "\n# ") {
		t.Errorf("marks of the source are left:\n%s", r.out)
	}
	for _, c := range New(&Deps{}).Commands() {
		r := kprobe(t, &fake{}, "", "help", c.Name())
		for line := range strings.Lines(r.out) {
			if n := len([]rune(strings.TrimRight(line, "\n"))); n > helpWidth && !strings.HasPrefix(line, "  ") {
				t.Errorf("%s: %d columns: %s", c.Name(), n, line)
			}
		}
	}
}

// TestOptionText: an option whose value may be left out is shown so.
func TestOptionText(t *testing.T) {
	graph, _, err := New(&Deps{}).Find([]string{"graph"})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"failed": " --failed[=FILTER]", "name": " --name GLOB", "follow": "-f --follow", "events": "-n --events N",
	} {
		short, long, value, _ := OptionText(graph.Flags().Lookup(name))
		if got := short + " " + long + value; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
