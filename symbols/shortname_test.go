package symbols

import (
	"slices"
	"testing"
)

func TestShort(t *testing.T) {
	for name, want := range map[string]string{
		"main": "main", "memcpy@plt": "memcpy@plt", "main.cold": "main.cold",
		"_ZN2ns1fEPKcm":           "ns::f",
		"_ZN2ns5twiceIdEET_S1_":   "ns::twice",
		"_ZNK2ns5inner5ShapeixEi": "ns::inner::Shape::operator[]", "_ZNK1McvPKcEv": "M::operator char const*", "_ZN1MnaEm": "M::operator new[]",
		"_ZN1M3runEv.part.0.cold":                                  "M::run.part.0.cold",
		"_ZN12_GLOBAL__N_111hidden_awayEi":                         "(anonymous namespace)::hidden_away",
		"_ZNSt6vectorIiSaIiEE9push_backERKi":                       "std::vector::push_back",
		"_ZNSt3__16vectorIiNS_9allocatorIiEEE4sizeEv":              "std::__1::vector::size",
		"_ZNKSt8functionIFiiEEclEi":                                "std::function::operator()",
		"_ZN4core3fmt5Write9write_str17h0123456789abcdefE":         "core::fmt::Write::write_str",
		"_ZN4core3fmt5Write9write_str17h0123456789abcdefE.llvm.77": "core::fmt::Write::write_str",
		"_RINvNtCsgEmfK2I1SDS_4core3ptr13drop_in_placeINtNtCslNYArtu3iFV_5alloc3vec3VechEECsjrHSEGnQ3l9_3std": "core::ptr::drop_in_place",
	} {
		s := Symbol{Name: name}
		if got := s.Short(); got != want {
			t.Errorf("%s is short for %s, not %s", got, name, want)
		}
		if isMangled(name) && !slices.Contains(nameForms(name), squeeze(want)) {
			t.Errorf("%s is not found by %s", name, want)
		}
	}
}

func TestWithoutTurbofish(t *testing.T) {
	for name, want := range map[string]string{
		"a::f": "a::f", "a::f::<u8>": "a::f", "a::f::<u8>::{closure#0}": "a::f::{closure#0}",
		"<a::V<u8> as b::T<c::D>>::f::<fn(u8) -> u8, e::<x>>": "<a::V<u8> as b::T<c::D>>::f", "a::f::<": "a::f::<",
	} {
		if got := withoutTurbofish(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
