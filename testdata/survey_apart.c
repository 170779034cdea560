// survey_apart has a switch whose first case is rare, so the compiler puts that into another part of the function; and
// a table of functions, the caller among them.
#include <stdlib.h>

static volatile long sunk;
__attribute__((cold, noinline)) void rare(long x) { sunk += x; }
__attribute__((noinline)) long uses(long *p) { return p[0] + p[5]; }

__attribute__((noinline)) long apart(unsigned op, long x) {
    long buf[8];
    buf[0] = x;
    buf[5] = op;
    switch (op) {
    case 0: rare(x); rare(x + 1); return uses(buf) + 3;
    case 1: x = uses(buf) * 3; break;
    case 2: sunk = x; return x + 1;
    case 3: x ^= uses(buf); break;
    case 4: rare(x); x += 1; break;
    case 5: x += 7; break;
    case 6: sunk++; x -= sunk; break;
    case 7: x = x * x; break;
    default: __builtin_unreachable();
    }
    buf[0] = x;
    return uses(buf) ^ x;
}

typedef long function(long);
long chosen(long);
__attribute__((noinline)) long minus(long x) { return x - 1; }
__attribute__((noinline)) long half(long x) { return x / 2; }
static function *const list[] = {chosen, minus, half, half};
__attribute__((noinline)) long chosen(long x) { return x > 0 ? list[x & 3](x - 1) : x; }

int main(int n, char **args) {
    long sum = 0;
    for (long i = 0; i < n * 80; i++)
        sum += apart(i & 7, i) + chosen(i);
    return sum == atol(args[0]);
}
