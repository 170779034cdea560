package probe

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/internal/procfs"
	"kprobe/probe/tracee"
)

// buildOCaml compiles a program of testdata.
func buildOCaml(t *testing.T, source, name string) string {
	t.Helper()
	cc := fixture.NeedTool(t, "ocamlopt")
	dir := t.TempDir()
	src, err := os.ReadFile("../testdata/" + source)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/"+name+".ml", src, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(cc, "-g", "-o", name, name+".ml")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir + "/" + name
}

// TestOCamlCollector: OCaml's collector, which knows calls by the return addresses on
// the stack, finds them while the returns of all of a program's functions are
// followed, also where the file has no names.
func TestOCamlCollector(t *testing.T) {
	prog := buildOCaml(t, "ocaml_collect.ml", "collect")
	stripped := prog + "_stripped"
	if out, err := exec.Command("strip", "-o", stripped, prog).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, c := range []struct {
		prog string
		o    Options
		defs []string
	}{
		{prog, Options{CountOnly: true}, []string{"r:c collect:caml*"}},
		{prog, Options{CountOnly: true}, []string{"p:e collect:caml*", "r:c collect:caml*"}},
		{prog, Options{CountOnly: true}, []string{"r:c caml_c_call"}},
		{prog, Options{CountOnly: true, NoOptimize: true}, []string{"r:c camlCollect__fold*", "r:g caml_garbage_collection"}},
		{stripped, Options{CountOnly: true}, []string{"r:c collect_stripped:*"}},
	} {
		l := unharmed(t, c.prog, c.o, c.defs)
		hits := uint64(0)
		for _, st := range l.sum.Stats {
			hits += st.Hits
		}
		if hits == 0 {
			t.Errorf("%v: no hits", c.defs)
		}
	}
}

// TestOCamlUsedStack: kprobe comes and goes while every byte of the only thread's stack
// has been used, and its stack pointer is anywhere on it, at its end too.
//
// A processor with AMX has 11 KB of registers, for which there may be no place while the
// program handles the overflow on its alternate stack. Then an attempt fails with ErrNoRoom.
// It must harm nothing, and what it leaves goes once the program has room again.
func TestOCamlUsedStack(t *testing.T) {
	sub := startSubject(t, buildOCaml(t, "ocaml_limit.ml", "limit"))
	sub.line()
	large := procfs.CPUHas("amx_tile")
	comeAndGo := func() []error {
		s, err := Attach(t.Context(), []int{sub.pid()}, Options{CountOnly: true})
		if err != nil {
			return []error{err}
		}
		return []error{s.Arm(t.Context(), parseDefs(t, "p:a camlLimit__stops_*")), s.Close(t.Context())}
	}
	for range full(25, 200) {
		if large {
			for _, err := range comeAndGo() {
				if err != nil && !errors.Is(err, tracee.ErrNoRoom) {
					t.Fatal(err)
				}
			}
			continue
		}
		l := attach(t, sub.pid(), Options{CountOnly: true}, "p:a camlLimit__stops_*")
		l.stop()
		<-l.done
		if err := l.s.Close(t.Context()); err != nil || l.err != nil {
			t.Fatal(err, l.err)
		}
	}
	if err := syscall.Kill(sub.pid(), syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	sub.expect("done")
	if large {
		for _, err := range comeAndGo() {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	sub.end()
}
