// Variables of one name in several places, of which the code sees one. See values_types.c.
#include <cstdio>
#include <string>
#include <tuple>

#define NOINLINE __attribute__((noinline))
#define OUT(...) (printf(__VA_ARGS__), fflush(stdout))

namespace aside { volatile int level = 1, size = 2, only = 3; }
namespace app {
volatile int level = 11;
namespace {
volatile int hidden = 12;
}
struct base { int size = 13; };
struct item : base {
	int level = 14;
	static volatile int shared;

	// probe: p:member app::item::member level size hidden shared n
	NOINLINE int member(int n)
	{
		OUT("=member {\"level\":%d,\"size\":%d,\"hidden\":%d,\"shared\":%d,\"n\":%d}\n", level, size, hidden, shared, n);
		return level + n;
	}
};
volatile int item::shared = 15;
// probe: p:inside app::inside level hidden
NOINLINE int inside()
{
	OUT("=inside {\"level\":%d,\"hidden\":%d}\n", level, hidden);
	return level;
}
}
volatile int level = 21, size = 22, shared = 23;

// probe: p:outside outside level size only
NOINLINE int outside()
{
	OUT("=outside {\"level\":%d,\"size\":%d,\"only\":%d}\n", level, size, aside::only);
	return level + size + shared + aside::level + aside::size;
}

// References in what keeps values together stand for what they refer to.
// probe: p:refer refer t p
NOINLINE void refer(const std::tuple<int &, const std::string &, double> &t, const std::pair<const int &, std::string &> &p)
{
	asm volatile("" ::"r"(&t), "r"(&p) : "memory");
	OUT("=refer {\"t\":[5,\"text\",2.5],\"p\":{\"first\":5,\"second\":\"text\"}}\n");
}

int main()
{
	app::item i;
	i.member(4);
	app::inside();
	outside();
	int n = 5;
	std::string s = "text";
	refer({n, s, 2.5}, {n, s});
}
