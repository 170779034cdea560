package symbols

import "testing"

// TestSiteName: a place is called by what it was named by, else by its function, else by its address.
func TestSiteName(t *testing.T) {
	fn := &Func{Symbol: Symbol{Name: "_ZN2ns1fEi"}, Start: 0x100, End: 0x200}
	for _, c := range []struct {
		site         Site
		name, inFunc string
	}{
		{Site{Addr: 0x7100, Func: new(Func)}, "0x7100", ""},
		{Site{Addr: 0x7100, Func: fn}, "ns::f(int)", "ns::f(int)"},
		{Site{Addr: 0x711a, Func: fn, Offset: 0x1a}, "ns::f(int)+0x1a", "ns::f(int)"},
		{Site{Addr: 0x711a, Func: fn, Offset: 0x1a, Named: "alias+0x1a"}, "alias+0x1a", "ns::f(int)"},
	} {
		if name, in := c.site.Name(), c.site.FuncName(); name != c.name || in != c.inFunc {
			t.Errorf("%+v: %q in %q, want %q in %q", c.site, name, in, c.name, c.inFunc)
		}
	}
}
