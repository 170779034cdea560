package symbols

import (
	"bytes"
	"errors"
	"testing"

	"kprobe/internal/fixture"
)

// TestConstant reads what a program can't change, and nothing else.
func TestConstant(t *testing.T) {
	f, err := OpenFile(fixture.Build(t, "sym_main.c", "-O1", "-DDYNAMIC", otherSource()))
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) Vaddr {
		syms := f.Lookup(name)
		if len(syms) == 0 {
			t.Fatalf("no symbol %s", name)
		}
		return syms[0].Vaddr
	}
	code, err := f.Text(at("main"), 8)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 8)
	if err := f.Constant(got, at("main")); err != nil || !bytes.Equal(got, code) {
		t.Errorf("% x, %v, want % x", got, err, code)
	}
	sec := f.im.section(".rodata")
	if err := f.Constant(got, sec.addr); err != nil {
		t.Errorf("constants: %v", err)
	}
	seg := f.im.load(sec.addr)
	for what, v := range map[string]Vaddr{"a variable": at("sym_counter"), "nothing": 1 << 60, "what ends before": seg.vaddr + Vaddr(seg.filesz) - 4} {
		if err := f.Constant(got, v); !errors.Is(err, ErrNotConstant) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestCertain tells functions from labels.
func TestCertain(t *testing.T) {
	f, err := OpenFile(fixture.Build(t, "survey_places.s", "-nostdlib", "-static", "-no-pie", "-Wl,--build-id=none", "-Wl,-z,noseparate-code"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"_start": true, "other": true, "unsized": false, "last": true} {
		v := f.Lookup(name)[0].Vaddr
		if got := f.Certain(v); got != want {
			t.Errorf("%s: %v", name, got)
		}
		if f.Certain(v + 1) {
			t.Errorf("%s+1 is a function's start", name)
		}
	}
	frames, err := OpenFile(fixture.Build(t, "probe_calls.c", "-O1", "-s"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, fn := range frames.Funcs() {
		if fn.Symbol.Kind == KindFDE {
			n++
			if !frames.Certain(fn.Start) {
				t.Errorf("%v: unwinding information doesn't count", fn.Start)
			}
		}
	}
	if n == 0 {
		t.Error("no function is known by unwinding information alone")
	}
}
