package assess

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/probe/survey"
	"kprobe/symbols"
)

func parsed(t *testing.T, line string) *fetch.Def {
	t.Helper()
	d, err := fetch.Parse(line)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return d
}

func TestCheck(t *testing.T) {
	prog := fixture.Build(t, "probe_calls.c", "-O1", "-pthread")
	space, err := symbols.OpenFileSpace(prog)
	if err != nil {
		t.Fatal(err)
	}
	var boundary *survey.BoundaryError
	var syntax *fetch.SyntaxError
	tests := []struct {
		def   string
		sites int
		as    any
		is    error
		say   string
	}{
		{def: "p work n=$arg1:u64 s=+0($arg2):string if n > 3", sites: 1},
		{def: "r work $retval", sites: 1},
		{def: "p p?ng n=$arg1", sites: 2},
		{def: "p work v=@global_number:u64", sites: 1},
		{def: "p work v=@libc:environ", sites: 1},
		{def: "p wrok", is: symbols.ErrNoSymbol, say: "work"},
		{def: "p libc:open", is: symbols.ErrNotMapped},
		{def: "p many+1", as: &boundary},
		{def: "p work+0x4000", is: symbols.ErrOutside},
		{def: "p global_text", is: symbols.ErrNotExecutable},
		{def: "p work v=@global_nubmer", as: &syntax},
	}
	for _, tt := range tests {
		t.Run(tt.def, func(t *testing.T) {
			got, err := Check(space, parsed(t, tt.def))
			if tt.sites > 0 {
				if err != nil || len(got.Sites) != tt.sites || got.Module == nil || filepath.Base(got.Module.Path) != filepath.Base(prog) {
					t.Errorf("%+v, %v", got, err)
				}
				return
			}
			var def *DefError
			switch {
			case !errors.As(err, &def) || def.Def.Text != tt.def:
				t.Errorf("%v is no *DefError", err)
			case tt.is != nil && !errors.Is(err, tt.is):
				t.Errorf("%v, want %v", err, tt.is)
			case tt.as != nil && !errors.As(err, tt.as):
				t.Errorf("%v is no %T", err, tt.as)
			case !strings.Contains(err.Error(), tt.say):
				t.Errorf("%v does not say %q", err, tt.say)
			}
		})
	}
}

func TestCheckOfWhatIsChosenLater(t *testing.T) {
	space, err := symbols.OpenFileSpace(fixture.NeedFile(t, "/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := Check(space, parsed(t, "p strlen"))
	if err != nil || !got.Unbound || got.Module == nil || len(got.Sites) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	// The signal trampoline is refused, and a glob goes around it.
	var refused *survey.RefusedError
	if _, err := Check(space, parsed(t, "p __restore_rt")); !errors.As(err, &refused) && !errors.Is(err, symbols.ErrNoSymbol) {
		t.Errorf("%v", err)
	}
}

func TestCheckInAProcess(t *testing.T) {
	space, err := symbols.OpenProcess(os.Getpid(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Check(space, parsed(t, "p 0x10")); !errors.Is(err, symbols.ErrNotExecutable) {
		t.Errorf("%v", err)
	}
	got, err := Check(space, parsed(t, "p kprobe/probe/assess.TestCheckInAProcess"))
	if err != nil || len(got.Sites) != 1 || !got.Module.Main {
		t.Errorf("%+v, %v", got, err)
	}
}
