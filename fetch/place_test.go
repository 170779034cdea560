package fetch

import (
	"strings"
	"testing"

	"kprobe/symbols"
)

func TestPlaces(t *testing.T) {
	type P = symbols.Place
	const (
		addr  = symbols.PlaceAddr
		vaddr = symbols.PlaceVaddr
		off   = symbols.PlaceOffset
		line  = symbols.PlaceLine
	)
	for _, c := range []struct {
		text string
		want P
		name string // generated
	}{
		{"work", P{Symbol: "work"}, "p_work_0"},
		{"work+0x1a", P{Symbol: "work", Offset: 26}, "p_work_26"},
		{"work+010", P{Symbol: "work", Offset: 8}, "p_work_8"},
		{"libc:openat", P{Module: "libc", Symbol: "openat"}, "p_libc_openat_0"},
		{"libc.so.6:openat+4", P{Module: "libc.so.6", Symbol: "openat", Offset: 4}, "p_libc_so_6_openat_4"},
		{"libstdc++.so.6:std::terminate", P{Module: "libstdc++.so.6", Symbol: "std::terminate"}, "p_libstdc___so_6_std__terminate_0"},
		{"/usr/lib/x.so:f", P{Module: "/usr/lib/x.so", Symbol: "f"}, "p__usr_lib_x_so_f_0"},
		{"0x401000", P{Kind: addr, Value: 0x401000}, "p_0x401000"},
		{"4198400", P{Kind: addr, Value: 0x401000}, "p_0x401000"},
		{"libc:0x401000", P{Kind: vaddr, Module: "libc", Value: 0x401000}, "p_libc_0x401000"},
		{"/bin/sh:0x4000", P{Kind: off, Module: "/bin/sh", Value: 0x4000}, "p_sh_0x4000"},
		{"/bin/my-prog.x:16384(0x10)", P{Kind: off, Module: "/bin/my-prog.x", Value: 0x4000, RefCtr: 16}, "p_my_0x4000"},
		{"./a.out:0x10", P{Kind: off, Module: "./a.out", Value: 16}, "p_a_0x10"},
		{"main.c:42", P{Kind: line, File: "main.c", Line: 42}, "p_main_c_42"},
		{"main.c:*", P{Kind: line, File: "main.c", Lines: "*"}, "p_main_c__"},
		{"src/main.c:8[0-5]", P{Kind: line, File: "src/main.c", Lines: "8[0-5]"}, "p_src_main_c_8_0_5_"},
		{"libc:main.c:4?", P{Kind: line, Module: "libc", File: "main.c", Lines: "4?"}, "p_libc_main_c_4_"},
		{"libc:work:*", P{Kind: line, Module: "libc", Symbol: "work", Lines: "*"}, "p_libc_work__"},
		{"libc:*", P{Module: "libc", Symbol: "*"}, "p_libc___0"},
		{"work*:3", P{Kind: line, Symbol: "work*", Line: 3}, "p_work__3"},
		{"work:0", P{Kind: line, Symbol: "work"}, "p_work_0"},
		{"src/main.c:42", P{Kind: line, File: "src/main.c", Line: 42}, "p_src_main_c_42"},
		{"libc:main.c:42", P{Kind: line, Module: "libc", File: "main.c", Line: 42}, "p_libc_main_c_42"},
		{"work:7", P{Kind: line, Symbol: "work", Line: 7}, "p_work_7"},
		{"ns::work:7", P{Kind: line, Symbol: "ns::work", Line: 7}, "p_ns__work_7"},
		{"work@file.c", P{Symbol: "work", File: "file.c"}, "p_work_0"},
		{"libc:work@file.c+4", P{Module: "libc", Symbol: "work", File: "file.c", Offset: 4}, "p_libc_work_4"},
		{"open@GLIBC_2.2.5", P{Symbol: "open@GLIBC_2.2.5"}, "p_open_GLIBC_2_2_5_0"},
		{"%shop:sold", P{Kind: symbols.PlaceUSDT, Provider: "shop", Symbol: "sold"}, "p_shop_sold"},
		{"libc:%shop:sold__out", P{Kind: symbols.PlaceUSDT, Module: "libc", Provider: "shop", Symbol: "sold__out"}, "p_shop_sold__out"},
		{"/opt/x-1.2/a.out:%shop:so*", P{Kind: symbols.PlaceUSDT, Module: "/opt/x-1.2/a.out", Provider: "shop", Symbol: "so*"}, "p_shop_so_"},
		{"%*:*", P{Kind: symbols.PlaceUSDT, Provider: "*", Symbol: "*"}, "p____"},
		{"libc:str*", P{Module: "libc", Symbol: "str*"}, "p_libc_str__0"},
		{"[a-c]*", P{Symbol: "[a-c]*"}, "p__a_c___0"},
		{"add<int, std::map<int, char const *> >", P{Symbol: "add<int, std::map<int, char const *> >"}, "p_add_int__std__map_int__char_const______0"},
		{"ns::f(int, char const*)", P{Symbol: "ns::f(int, char const*)"}, "p_ns__f_int__char_const___0"},
		{"ns::C::operator+(ns::C const&)", P{Symbol: "ns::C::operator+(ns::C const&)"}, "p_ns__C__operator__ns__C_const___0"},
		{"operator-+4", P{Symbol: "operator-", Offset: 4}, "p_operator__4"},
		{"C::operator%", P{Symbol: "C::operator%"}, "p_C__operator__0"},
		{`"operator new(unsigned long)"`, P{Symbol: "operator new(unsigned long)"}, "p_operator_new_unsigned_long__0"},
		{`"f(int) const"+8`, P{Symbol: "f(int) const", Offset: 8}, "p_f_int__const_8"},
		{"main.(*T).Method", P{Symbol: "main.(*T).Method"}, "p_main___T__Method_0"},
		{"net/http.(*conn).serve", P{Symbol: "net/http.(*conn).serve"}, "p_net_http___conn__serve_0"},
		{"net/http.(*conn).serve:12", P{Kind: line, Symbol: "net/http.(*conn).serve", Line: 12}, "p_net_http___conn__serve_12"},
		{"gopkg.in/yaml%2ev3.Unmarshal", P{Symbol: "gopkg.in/yaml%2ev3.Unmarshal"}, "p_gopkg_in_yaml_2ev3_Unmarshal_0"},
		{`"<T as core::fmt::Debug>::fmt"`, P{Symbol: "<T as core::fmt::Debug>::fmt"}, "p__T_as_core__fmt__Debug___fmt_0"},
	} {
		t.Run(c.text, func(t *testing.T) {
			for _, def := range []string{c.text, "p " + c.text, "p:ev " + c.text} {
				d, err := Parse(def)
				if err != nil {
					t.Fatal(err)
				}
				if d.Place != c.want || d.Kind != Entry {
					t.Fatalf("Parse(%q): %s %+v, want %+v", def, d.Kind, d.Place, c.want)
				}
				if def != "p:ev "+c.text && d.Event != c.name {
					t.Errorf("name %q, want %q", d.Event, c.name)
				}
				if d.Named != strings.Contains(def, "p:ev ") {
					t.Errorf("Named = %v", d.Named)
				}
			}
		})
	}
}

func TestReturnPlaces(t *testing.T) {
	for _, c := range []struct {
		def       string
		maxactive int
		name      string
	}{
		{"r work", 0, "r_work_0"},
		{"r16 work", 16, "r_work_0"},
		{"r0:ev work", 0, "ev"},
		{"r4096:ev work", 4096, "ev"},
		{"p work%return", 0, "r_work_0"},
		{"work%return", 0, "r_work_0"},
		{"p work+0%return", 0, "r_work_0"},
		{"r work%return", 0, "r_work_0"},
		{"r /bin/sh:0x10", 0, "p_sh_0x10"},
		{"p /bin/sh:0x10%return", 0, "p_sh_0x10"},
		{"r 0x401000", 0, "r_0x401000"},
		{"p 0x401000%return", 0, "r_0x401000"},
	} {
		t.Run(c.def, func(t *testing.T) {
			d, err := Parse(c.def)
			if err != nil {
				t.Fatal(err)
			}
			if d.Kind != Return || !d.Place.Return || d.MaxActive != c.maxactive || d.Event != c.name {
				t.Errorf("got %s %d %q %+v", d.Kind, d.MaxActive, d.Event, d.Place)
			}
		})
	}
}

// TestGeneratedNames checks that names that are cut stay valid and apart.
func TestGeneratedNames(t *testing.T) {
	a, err := Parse("p " + long(100) + "1")
	if err != nil {
		t.Fatal(err)
	}
	b, err := Parse("p " + long(100) + "2")
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Event) != MaxName || !isGoodName(a.Event) || a.Event == b.Event {
		t.Errorf("names %q and %q", a.Event, b.Event)
	}
}
