package symbols

import (
	"errors"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// A name with parameters means the function of these types, with whatever clone a
// compiler has made of it, and never another one.
func TestOverloads(t *testing.T) {
	for _, level := range []string{"-O0", "-O2"} {
		space, err := OpenFileSpace(fixture.Build(t, "overloads.cc", "-g", level))
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{
			"ns::Server::handle(std::string const&, int)":                                    "basic_string<char, std::char_traits<char>, std::allocator<char> > const&, int)",
			"ns::Server::handle(const std::string &,int)":                                    "basic_string<char, std::char_traits<char>, std::allocator<char> > const&, int)",
			"ns::Server::handle(double)":                                                     "ns::Server::handle(double)",
			"ns::Server::handle(unsigned) const":                                             "ns::Server::handle(unsigned int) const",
			"ns::Server::handle(const std::vector<std::string>&, std::map<int, long int> *)": "ns::Server::handle(std::vector<",
			"ns::add<int>(int, int)":                                                         "ns::add<int>(",
			"ns::local(const char *)":                                                        "ns::local(char const*)",
			"ns::local(long int)":                                                            "ns::local(long)",
			"outer(signed)":                                                                  "outer(int)",
		} {
			sites, err := space.Resolve(Place{Symbol: name})
			if err != nil || len(sites) != 1 || !strings.Contains(sites[0].Name(), want) {
				t.Errorf("%s: %s: %+v, %v", level, name, sites, err)
			}
		}
		for _, name := range []string{"ns::Server::handle(nonsense)", "ns::Server::handle(float)", "ns::Server::handle(unsigned)", "ns::Server::handle()", "outer(long)", "ns::local(int)", "ns::add<int>(int, double)"} {
			sites, err := space.Resolve(Place{Symbol: name})
			var missing *NotFoundError
			if !errors.As(err, &missing) || len(missing.Near) == 0 {
				t.Errorf("%s: %s: %+v, %v", level, name, sites, err)
			}
		}
		for _, name := range []string{"ns::Server::handle", "ns::add", "ns::local"} {
			sites, err := space.Resolve(Place{Symbol: name})
			var several *AmbiguousError
			if !errors.As(err, &several) || len(several.Candidates) < 2 {
				t.Errorf("%s: %s: %+v, %v", level, name, sites, err)
			}
		}
	}
}

func TestSignature(t *testing.T) {
	for _, same := range [][]string{
		{"f(unsigned)", "f(unsigned int)", "f(uint32_t)", "f(const unsigned)", "f( int unsigned )"},
		{"f(std::string const&)", "f(const std::string &)", "f(std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> > const&)", "f(std::__1::basic_string<char>const&)"},
		{"f(long)", "f(long int)", "f(int64_t)", "f(std::ptrdiff_t)"},
		{"f(char const*, void*)", "f(const char *, void *)", "f(char const* const, void*)"},
		{"f()", "f(void)"},
		{"f(std::vector<int>)", "f(std::vector<int, std::allocator<int> >)"},
		{"f(int (*)(char const*))", "f(int(*)(char const*))"},
	} {
		for _, s := range same[1:] {
			if signature(s) != signature(same[0]) {
				t.Errorf("%s: %s, and %s: %s", s, signature(s), same[0], signature(same[0]))
			}
		}
	}
	for _, other := range [][2]string{
		{"f(char*)", "f(char const*)"}, {"f(int)", "f(unsigned)"}, {"f(int&)", "f(int)"}, {"f(long)", "f(long long)"},
		{"f(std::vector<int const*>)", "f(std::vector<int*>)"}, {"f() const", "f()"}, {"f(char)", "f(signed char)"}, {"f(my::less<int>)", "f()"},
	} {
		if signature(other[0]) == signature(other[1]) {
			t.Errorf("%s is %s: %s", other[0], other[1], signature(other[0]))
		}
	}
}
