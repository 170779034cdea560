// Texts of wide characters, atomic floats, and many structures at one place. See
// values_types.c.
#include <atomic>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#define NOINLINE __attribute__((noinline))
#define OUT(...) (printf(__VA_ARGS__), fflush(stdout))

struct named { std::wstring name; std::u16string_view view; };

// probe: p:texts texts w u16 u32 u8 long16 empty alone
NOINLINE void texts(const std::wstring &w, const std::u16string &u16, const std::u32string &u32, const std::u8string &u8, const std::u16string &long16, const std::wstring &empty, const std::u16string &alone)
{
	asm volatile("" ::"r"(&w), "r"(&u16), "r"(&u32), "r"(&u8), "r"(&long16), "r"(&empty), "r"(&alone) : "memory");
	OUT("=texts {\"w\":\"w € 😀\",\"u16\":\"u ä 😀\",\"u32\":\"😀x\",\"u8\":\"ü\",\"long16\":\"more than an object has room for: 😀\",\"empty\":\"\","
	    "\"alone\":\"a\uFFFD\uFFFD\uFFFDb\"}\n");
}

// probe: p:views views w u16 u8 p p16 none
NOINLINE void views(std::wstring_view w, std::u16string_view u16, std::u8string_view u8, const wchar_t *p, const char16_t *p16, const char32_t *none)
{
	OUT("=views {\"w\":\"view\",\"u16\":\"v😀\",\"u8\":\"vä\",\"p\":\"wide €\",\"p16\":\"u16\",\"none\":null}\n");
	asm volatile("" ::"r"(&w), "r"(&u16), "r"(&u8), "r"(p), "r"(p16), "r"(none) : "memory");
}

// probe: p:within within n m v
NOINLINE void within(const named &n, const std::map<std::wstring, std::u16string> &m, const std::vector<std::u32string> &v)
{
	asm volatile("" ::"r"(&n), "r"(&m), "r"(&v) : "memory");
	OUT("=within {\"n\":{\"name\":\"n\",\"view\":\"nv\"},\"m\":{\"k\":\"v\"},\"v\":[\"a\",\"bc\"]}\n");
}

// probe: p:unsound unsound w
NOINLINE void unsound(const std::wstring &w)
{
	asm volatile("" ::"r"(&w) : "memory");
	OUT("=unsound {\"w\":null}\n");
}

// probe: p:atomics atomics d f n
NOINLINE void atomics(const std::atomic<double> &d, const std::atomic<float> &f, const std::atomic<long> &n)
{
	asm volatile("" ::"r"(&d), "r"(&f), "r"(&n) : "memory");
	OUT("=atomics {\"d\":2.5,\"f\":-1.25,\"n\":7}\n");
}

struct leaf { int v; };
struct branch { leaf a, b, c, d; };
struct nest { branch a, b, c, d; };

#define EACH4(X, n) X(n##0) X(n##1) X(n##2) X(n##3)
#define EACH(X) EACH4(X, 1) EACH4(X, 2) EACH4(X, 3) EACH4(X, 4) EACH4(X, 5) EACH4(X, 6) EACH4(X, 7) EACH4(X, 8) EACH4(X, 9) \
	EACH4(X, 11) EACH4(X, 12) EACH4(X, 13) EACH4(X, 14) EACH4(X, 15) EACH4(X, 16) EACH4(X, 17) EACH4(X, 18) EACH4(X, 19)

// probe: p:many many $params
#define PARAMETER(n) const nest &x##n,
NOINLINE void many(EACH(PARAMETER) int last)
{
	OUT("=many {");
#define PRINTED(n) \
	{ \
		const leaf *l = &x##n.a.a; \
		asm volatile("" ::"r"(&x##n) : "memory"); \
		printf("\"x%d\":{", n); \
		for (int i = 0; i < 4; i++, l += 4) \
			printf("%s\"%c\":{\"a\":{\"v\":%d},\"b\":{\"v\":%d},\"c\":{\"v\":%d},\"d\":{\"v\":%d}}", i ? "," : "", 'a' + i, l[0].v, l[1].v, l[2].v, l[3].v); \
		printf("},"); \
	}
	EACH(PRINTED)
	OUT("\"last\":%d}\n", last);
}

int main()
{
	texts(L"w \u20ac \U0001F600", u"u \u00e4 \U0001F600", U"\U0001F600x", u8"\u00fc", u"more than an object has room for: \U0001F600", L"", std::u16string{u'a', char16_t(0xd83d), u'b'});
	views(L"view", u"v\U0001F600", u8"v\u00e4", L"wide \u20ac", u"u16", nullptr);
	within(named{L"n", u"nv"}, {{L"k", u"v"}}, {U"a", U"bc"});
	unsound(std::wstring(1, wchar_t(0x110000)));
	atomics(2.5, -1.25f, 7);
	nest n[4];
	for (int i = 0; i < 4 * 16; i++)
		(&n[0].a.a)[i].v = i * i;
#define ARGUMENT(x) n[x % 4],
	many(EACH(ARGUMENT) 99);
}
