// One of many units of a large program, each with another number for UNIT: what uses much of
// the standard library has much debug information.
#include <algorithm>
#include <any>
#include <chrono>
#include <deque>
#include <functional>
#include <future>
#include <iostream>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <variant>
#include <vector>
#include <filesystem>
namespace app_UNIT {
struct item { int id; std::string name; std::vector<int> v; std::map<std::string, std::vector<double>> m; };
class store { 
 std::unordered_map<std::string, std::shared_ptr<item>> items; std::deque<item> q; std::variant<int, std::string, item> last;
 public:
  int add(const std::string &name, std::vector<int> v);
  std::optional<item> find(const std::string &name) const;
  std::vector<item> matching(const std::string &pattern) const;
};
__attribute__((noinline)) int store::add(const std::string &name, std::vector<int> v) {
  auto p = std::make_shared<item>(); p->name = name; p->v = v; p->id = (int)items.size();
  p->m[name].push_back(p->id); items[name] = p; q.push_back(*p); last = *p;
  std::sort(q.begin(), q.end(), [](const item &a, const item &b) { return a.name < b.name; });
  return p->id;
}
std::optional<item> store::find(const std::string &name) const { auto i = items.find(name); if (i == items.end()) return {}; return *i->second; }
std::vector<item> store::matching(const std::string &pattern) const {
  std::regex re(pattern); std::vector<item> r;
  for (auto &i : q) if (std::regex_search(i.name, re)) r.push_back(i);
  return r;
}
store s;
__attribute__((noinline)) int work_UNIT(int n, const std::string &text) {
  std::ostringstream o; o << n << text; 
  int k = s.add(o.str(), {n, n + 1});
  return k + (int)s.matching("a.*b").size() + (s.find("x") ? 1 : 0);
}
}
int entry_UNIT(int n) { return app_UNIT::work_UNIT(n, "text"); }
