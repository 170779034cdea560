// A function that ends in a jump to one that two libraries define, and that the loader binds
// when it is called first. Usage: exits_either ROUNDS; as probe_calls otherwise.
//
// -DEITHER=N is a library that defines it, -DASKS the one that jumps to it.
#include <cstdio>
#include <cstdlib>

#define FUNC extern "C" __attribute__((noinline, noclone))

FUNC long either(long x);
FUNC long asks(long x);

#ifdef EITHER
volatile long called;
FUNC long either(long x)
{
    if (x < 0) throw EITHER;
    called = EITHER;
    return 3 * x + 1;
}
#elif defined ASKS
static volatile long sunk;
FUNC long asks(long x) { sunk = x; return either(x); }
#else
int main(int argc, char **argv)
{
    char line[64];
    puts("ready");
    fflush(stdout);
    if (argc < 2 || !fgets(line, sizeof line, stdin)) return 3;
    long sum = 0, thrown = 0, rounds = atol(argv[1]);
    for (long i = 0; i < rounds; i++) {
        sum += asks(i);
        try {
            asks(-1);
        } catch (int) {
            thrown++;
        }
        sum += either(i); // at the same slot, maybe
    }
    printf("done %ld %ld\n", sum, thrown);
    fflush(stdout);
    (void)!fgets(line, sizeof line, stdin);
    return 7;
}
#endif
