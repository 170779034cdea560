package symbols

import (
	"fmt"
	"runtime"
	"testing"
)

func TestGoVersion(t *testing.T) {
	for text, want := range map[string]string{
		"go1.26.8": "1 26 true", "go1.19": "1 19 true", "go1.24rc1": "1 24 true",
		"devel go1.25-5f7cc9e Tue": "1 25 true", "go1.22.3 X:boringcrypto": "1 22 true", "go1.21.0-custom": "1 21 true",
		"": "0 0 false", "go": "0 0 false", "gopher 1.2": "0 0 false",
	} {
		if major, minor, ok := goVersion(text); fmt.Sprint(major, " ", minor, " ", ok) != want {
			t.Errorf("%q: %d %d %v, want %s", text, major, minor, ok, want)
		}
	}
	for _, flags := range [][]string{nil, {"-ldflags=-s -w"}, {"-buildmode=pie"}} {
		_, f := openFixture(t, "sym_go.go", flags...)
		major, minor, ok := f.GoVersion()
		wantMajor, wantMinor, _ := goVersion(runtime.Version())
		if !ok || major != wantMajor || minor != wantMinor {
			t.Errorf("%v: %d.%d, %v, of a program of %s", flags, major, minor, ok, runtime.Version())
		}
	}
	_, f := openFixture(t, "sym_usdt.c")
	if _, _, ok := f.GoVersion(); ok {
		t.Error("a program in C has a version of Go")
	}
}
