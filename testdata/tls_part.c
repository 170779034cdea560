// A library with thread-local variables, for tests of their places.
#ifndef MODEL
#define MODEL "global-dynamic"
#endif
__thread long part_first __attribute__((tls_model(MODEL))) = 5;
static __thread struct { char name[8]; long n; } part_state __attribute__((tls_model(MODEL)));

__attribute__((noinline)) long part_hit(long n)
{
	asm volatile("" ::: "memory");
	return part_first + part_state.n + n;
}

__attribute__((noinline)) long part_early(long n)
{
	asm volatile("" ::: "memory");
	return n;
}

long part_set(long n)
{
	part_early(n); // the thread has none of them yet
	part_first = n;
	part_state.n = n * 1000;
	part_state.name[0] = 'a' + n;
	part_state.name[1] = 0;
	asm volatile("" ::"r"(&part_state) : "memory"); // it stays whole
	return part_hit(n);
}
