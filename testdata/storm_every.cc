// What C++ compilers make of the language and its library: exceptions through
// several frames, virtual bases, casts at run time, coroutines, containers,
// streams. The use is that of storm_every.c.
#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <coroutine>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <iomanip>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <typeinfo>
#include <unordered_map>
#include <variant>
#include <vector>

#define NOINLINE __attribute__((noinline))
using u64 = uint64_t;
static NOINLINE u64 mix(u64 h, u64 v) { h ^= v; h *= 0x100000001b3ull; return h ^ h >> 29; }
static u64 text(u64 h, const std::string &s) { for (unsigned char c : s) h = mix(h, c); return h; }

static thread_local int alive;
struct Counted { int id; explicit Counted(int i) : id(i) { alive++; } Counted(const Counted &o) : id(o.id) { alive++; } ~Counted() { alive--; } };
struct Failure : std::runtime_error { int code; Failure(int c) : std::runtime_error("failure " + std::to_string(c)), code(c) {} };
static NOINLINE long thrower(long n, int depth) {
    Counted c(depth);
    if (depth == 0) {
        switch (n % 5) {
        case 0: throw Failure(int(n));
        case 1: throw std::out_of_range("range");
        case 2: throw 42;
        case 3: throw std::string("text");
        }
        return n;
    }
    std::string filler(20 + depth, 'f');
    try { return thrower(n, depth - 1) + long(filler.size()); }
    catch (int i) { if (depth == 2) return i; throw; }
}
static NOINLINE u64 exceptions(u64 h) {
    for (long n = 0; n < 5; n++) {
        try { h = mix(h, thrower(n, 3)); }
        catch (const Failure &f) { h = mix(text(h, f.what()), f.code); }
        catch (const std::exception &e) { h = text(h, e.what()); }
        catch (const std::string &s) { h = text(h, s); }
        h = mix(h, alive);
    }
    try { try { throw 1; } catch (...) { std::throw_with_nested(std::logic_error("outer")); } }
    catch (const std::exception &e) { try { std::rethrow_if_nested(e); } catch (int i) { h = mix(h, i); } }
    try { (void)std::vector<int>(3).at(7); } catch (const std::out_of_range &) { h = mix(h, 7); }
    try { (void)std::stoi("none"); } catch (const std::invalid_argument &) { h = mix(h, 8); }
    std::exception_ptr p;
    try { throw Failure(9); } catch (...) { p = std::current_exception(); }
    try { std::rethrow_exception(p); } catch (const Failure &f) { h = mix(h, f.code); }
    return h;
}

struct Base { virtual ~Base() {} virtual long value() const { return 1; } long base = 2; };
struct Left : virtual Base { long value() const override { return base + 10; } long left = 3; };
struct Right : virtual Base { virtual long more() const { return base + 20; } long right = 4; };
struct Both : Left, Right { long value() const override { return Left::value() + more() + right; } };
static NOINLINE u64 objects(u64 h) {
    std::vector<std::unique_ptr<Base>> v;
    v.push_back(std::make_unique<Base>()); v.push_back(std::make_unique<Left>()); v.push_back(std::make_unique<Both>());
    long (Base::*m)() const = &Base::value;
    for (auto &b : v) {
        h = mix(h, b->value()); h = mix(h, (b.get()->*m)());
        if (auto *r = dynamic_cast<Right *>(b.get())) h = mix(h, r->more());
        h = mix(h, typeid(*b) == typeid(Both));
    }
    try { (void)dynamic_cast<Both &>(*v[0]); } catch (const std::bad_cast &) { h = mix(h, 5); }
    auto s = std::make_shared<Counted>(5); std::weak_ptr<Counted> w = s; auto s2 = s; h = mix(h, s.use_count()); s.reset(); s2.reset(); return mix(h, w.expired());
}

struct Numbers {
    struct promise_type {
        long now = 0;
        Numbers get_return_object() { return Numbers{std::coroutine_handle<promise_type>::from_promise(*this)}; }
        std::suspend_always initial_suspend() { return {}; }
        std::suspend_always final_suspend() noexcept { return {}; }
        std::suspend_always yield_value(long v) { now = v; return {}; }
        void return_void() {}
        void unhandled_exception() { throw; }
    };
    std::coroutine_handle<promise_type> h;
    ~Numbers() { h.destroy(); }
};
static Numbers fibonacci(int n) { long a = 0, b = 1; while (n--) { co_yield a; long c = a + b; a = b; b = c; } throw Failure(3); }
static NOINLINE u64 coroutines(u64 h) {
    Numbers f = fibonacci(20);
    try { for (;;) { f.h.resume(); h = mix(h, f.h.promise().now); } } catch (const Failure &e) { h = mix(h, e.code); }
    return h;
}

static NOINLINE u64 containers(u64 h) {
    std::map<std::string, int> m; std::unordered_map<int, std::string> u; std::set<long> s; std::deque<int> d; std::list<int> l; std::priority_queue<int> q; std::multimap<int, int> mm;
    for (int i = 0; i < 40; i++) {
        m["key " + std::to_string(i * 7 % 40)] += i; u[i * 31] = std::string(i % 25, 'u'); s.insert(i * i % 41); d.push_front(i); l.push_back(i * 13 % 17); q.push(i * 5 % 23); mm.emplace(i % 5, i);
    }
    for (auto &[k, v] : m) h = mix(text(h, k), v);
    for (int i = 0; i < 40; i++) h = mix(h, u.at(i * 31).size());
    m.erase("key 3"); u.erase(31); s.erase(4); l.sort(); l.unique(); d.resize(20);
    h = std::accumulate(l.begin(), l.end(), h, mix); h = std::accumulate(s.begin(), s.end(), h, mix); h = std::accumulate(d.rbegin(), d.rend(), h, mix);
    while (!q.empty()) { h = mix(h, q.top()); q.pop(); }
    std::vector<double> v(50); std::iota(v.begin(), v.end(), 0.5); std::reverse(v.begin(), v.end()); std::mt19937 rng(7); std::shuffle(v.begin(), v.end(), rng); std::sort(v.begin(), v.end()); std::stable_sort(v.begin(), v.end(), std::greater<>()); std::nth_element(v.begin(), v.begin() + 9, v.end());
    h = mix(h, u64(v[9] * 4)); h = mix(h, std::count_if(v.begin(), v.end(), [](double x) { return x > 10; })); h = mix(h, mm.count(3)); std::uniform_int_distribution<int> dist(1, 6); for (int i = 0; i < 9; i++) h = mix(h, dist(rng));
    std::function<long(long)> f = [&](long n) { return n < 2 ? n : f(n - 1) + f(n - 2); }; h = mix(h, f(9));
    std::variant<int, std::string, double> x = 3; h = mix(h, x.index()); x = "variant"; h = std::visit([&](auto &a) { return mix(h, sizeof a); }, x); std::optional<long> o; h = mix(h, o.value_or(5));
    return h;
}
static NOINLINE u64 streams(u64 h) {
    std::ostringstream o; o << "hex " << std::hex << 255 << std::setw(8) << std::setfill('0') << 17 << ' ' << std::fixed << std::setprecision(3) << 3.14159 << ' ' << std::boolalpha << true << '\n'; h = text(h, o.str());
    std::istringstream i("12 word 2.5 rest of it\nnext"); int a; std::string w, r; double d; i >> a >> w >> d; std::getline(i, r); h = mix(text(text(h, w), r), a + int(d * 2));
    std::string s = "a string that is long enough for the heap"; s.insert(3, "xyz"); s.replace(0, 2, "BB"); s.erase(5, 4); s += s.substr(3, 9); h = mix(text(h, s), s.find("long") + s.rfind('e') + s.find_first_of("xyz"));
    char b[32]; auto e = std::to_chars(b, b + 32, 12345.5).ptr; h = text(h, std::string(b, e)); long n = 0; std::from_chars("987", "987" + 3, n); return mix(h, n + std::stol("55") + long(std::stod("1.25") * 4));
}
static NOINLINE u64 everything() {
    static std::mutex mu; { std::lock_guard<std::mutex> g(mu); }
    u64 h = 14695981039346656037ull; h = exceptions(h); h = objects(h); h = coroutines(h); h = containers(h); return streams(h);
}

static std::atomic<bool> stop; static u64 right; static std::atomic<unsigned long> bad; static long count = -1;
static void run() { long n = 0; while (!stop && (count < 0 || n < count)) { n++; if (everything() != right) bad++; } }
int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 1; char line[64]; std::vector<std::thread> t;
    if (argc > 2) count = atol(argv[2]);
    right = everything();
    puts("ready"); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 3;
    if (count >= 0) run();
    else { for (int i = 0; i < n; i++) t.emplace_back(run); if (!fgets(line, sizeof line, stdin)) return 3; stop = true; for (auto &x : t) x.join(); }
    printf("done %lu\n", bad.load()); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 4;
    return 7;
}
