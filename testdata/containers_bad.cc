// Containers that are empty, moved from or corrupted: a function see_NAME is called
// with each, and looks at none of it.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <list>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#define SEE(name, type) extern "C" __attribute__((noinline)) void see_##name(type &x) { asm volatile("" ::"r"(&x) : "memory"); }
using text = std::string;
using ints = std::vector<int>;
using texts = std::vector<std::string>;
using tree = std::map<int, int>;
using hash = std::unordered_map<int, int>;
using chain = std::list<int>;
SEE(text, text)
SEE(ints, ints)
SEE(texts, texts)
SEE(tree, tree)
SEE(hash, hash)
SEE(chain, chain)

// The word of a container at an index.
template <class T> uintptr_t &word(T &x, int i) { return reinterpret_cast<uintptr_t *>(&x)[i]; }

// with calls see with a value whose words are changed, and puts them back.
template <class T, class F> void with(T &x, void (*see)(T &), F change) {
	char save[sizeof(T)];
	memcpy(save, static_cast<void *>(&x), sizeof x);
	change();
	see(x);
	memcpy(static_cast<void *>(&x), save, sizeof x);
}

int main() {
	const uintptr_t bad[] = {0, 1, 0x1000, ~0ul, ~7ul, 0x8000000000000000, 0x00007ffffffff000};
	text s = "a text that is longer than what fits inside";
	text gone = std::move(s);
	see_text(s);
	see_text(gone);
	ints v{1, 2, 3}, moved;
	see_ints(moved);
	see_ints(v);
	moved = std::move(v);
	see_ints(v);
	texts ts{"one", "two"};
	tree t{{1, 2}, {3, 4}, {5, 6}};
	hash h{{1, 2}, {3, 4}};
	chain l{1, 2, 3};
	tree t0;
	hash h0;
	chain l0;
	see_tree(t0);
	see_hash(h0);
	see_chain(l0);
	// Each word of each, by each bad value.
	for (uintptr_t b : bad) {
		for (int i = 0; i < 2; i++) with(gone, see_text, [&] { word(gone, i) = b; });
		for (int i = 0; i < 3; i++) with(moved, see_ints, [&] { word(moved, i) = b; });
		for (int i = 0; i < 3; i++) with(ts, see_texts, [&] { word(ts, i) = b; });
		for (int i = 1; i < 6; i++) with(t, see_tree, [&] { word(t, i) = b; });
		for (int i = 0; i < 4; i++) with(h, see_hash, [&] { word(h, i) = b; });
		for (int i = 0; i < 3; i++) with(l, see_chain, [&] { word(l, i) = b; });
		uintptr_t ptr = word(ts[0], 0);
		word(ts[0], 0) = b;
		see_texts(ts);
		word(ts[0], 0) = ptr;
	}
	// Ends before beginnings, and chains that lead to themselves.
	with(moved, see_ints, [&] { std::swap(word(moved, 0), word(moved, 1)); });
	auto *node = reinterpret_cast<uintptr_t *>(word(t, 2)); // the tree's root
	uintptr_t left = node[2], right = node[3];
	node[2] = node[3] = reinterpret_cast<uintptr_t>(node);
	with(t, see_tree, [&] { word(t, 5) = 1ul << 40; });
	node[2] = left, node[3] = right;
	auto *first = reinterpret_cast<uintptr_t *>(word(l, 0));
	uintptr_t next = first[0];
	first[0] = reinterpret_cast<uintptr_t>(first);
	with(l, see_chain, [&] { word(l, 2) = 1ul << 40; });
	first[0] = next;
	first = reinterpret_cast<uintptr_t *>(word(h, 2));
	next = first[0];
	first[0] = reinterpret_cast<uintptr_t>(first);
	with(h, see_hash, [&] { word(h, 3) = 1ul << 40; });
	first[0] = next;
	std::puts("unharmed");
}
