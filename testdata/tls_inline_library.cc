#include "tls_inline.h"

static thread_local int own = 50;

extern "C" __attribute__((noinline)) int use(int by) {
	Each::counter += by;
	shared += 10 * by;
	own += by;
	__asm__ volatile("" ::: "memory");
	return Each::counter + static_cast<int>(shared);
}
