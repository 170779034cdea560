// Functions that end in a jump through a table of functions, and functions with switches and computed gotos, as many
// forms of each as compilers have. Usage: probe_tables ROUNDS. Each is called eight times in a round. As probe_calls it
// prints "ready", waits for a line, works, prints "done SUM" and ends after another line.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUNC __attribute__((noinline, noclone))
typedef long function(long);
static volatile long sunk;

FUNC long plus(long x) { sunk = 1; return x + 1; }
FUNC long times(long x) { sunk = 2; return x * 3; }
FUNC static long minus(long x) { sunk = 3; return x - 9; }
FUNC static long hidden(long x) { sunk = 4; return x ^ 11; }
__attribute__((cold)) FUNC long rare(long x) { sunk = x; return x + 2; }

// Tables that the program fills, and tables of structures.
function *filled[4];
static function *filled_here[4];
static function *initialized[4] = {plus, minus, times, hidden};
static function *const fixed[4] = {hidden, minus, hidden, minus};
struct two { const char *name; function *f; };
struct three { const char *name; function *f; long more; };
struct four { const char *name; long more; function *f; long most; };
static const struct two twos[4] = {{"a", plus}, {"b", hidden}, {"c", times}, {"d", minus}};
static const struct three threes[4] = {{"a", plus}, {"b", hidden}, {"c", times}, {"d", minus}};
static const struct four fours[4] = {{"a", 1, plus}, {"b", 2, hidden}, {"c", 3, times}, {"d", 4, minus}};
static struct two filled_twos[4];
struct three filled_threes[4];

FUNC long tail_filled(long x, int i) { sunk = 7; return filled[i & 3](x); }
FUNC long tail_here(long x, int i) { sunk = 7; return filled_here[i & 3](x); }
FUNC long tail_initialized(long x, int i) { sunk = 7; return initialized[i & 3](x); }
FUNC long tail_fixed(long x, int i) { sunk = 7; return fixed[i & 3](x); }
FUNC long tail_behind(long x, int i) { sunk = 7; return i < 7 ? fixed[(i & 1) + 1](x) : x; }
FUNC long tail_bounded(long x, unsigned i) { if (i >= 4) return x; return fixed[i](x); }
FUNC long tail_twos(long x, int i) { sunk = 7; return twos[i & 3].f(x); }
FUNC long tail_threes(long x, int i) { sunk = 7; return threes[i & 3].f(x); }
FUNC long tail_fours(long x, int i) { sunk = 7; return fours[i & 3].f(x); }
FUNC long tail_filled_twos(long x, int i) { sunk = 7; return filled_twos[i & 3].f(x); }
FUNC long tail_filled_threes(long x, int i) { sunk = 7; return filled_threes[i & 3].f(x); }
FUNC long tail_frame(long x, int i) { char b[200]; memset(b, (int)x, sizeof b); sunk = b[i]; return filled[i & 3](x); }
FUNC long tail_either(long x, int i) { if (i & 1) return filled_here[i & 3](x); if (x & 1) return twos[i & 3].f(x); return fixed[i & 3](x); }
FUNC long tail_local(long x, int i) { function *list[3] = {plus, hidden, times}; return list[i % 3](x); }

FUNC long switch_leaf(long x, int i) {
    switch (i) {
    case 0: return x + 1; case 1: return x * 7; case 2: return x - 3; case 3: sunk = x; return x ^ 77; case 4: return sunk; case 5: return x / 3;
    }
    return 0;
}
FUNC long switch_calls(long x, int i) {
    switch (i) {
    case 0: return plus(x) + 1; case 1: return times(x); case 2: x = minus(x); break; case 3: x = hidden(x) + plus(x); break; case 4: x = times(x); case 5: return hidden(x);
    }
    return x;
}
// The compiler puts the first case into another part, which returns.
FUNC long switch_apart(long x, unsigned i) {
    long b[6];
    b[0] = x;
    b[3] = i;
    switch (i) {
    case 0: rare(x); rare(x + 1); return rare(b[0]) + 3;
    case 1: x = times(x) * 3; break;
    case 2: return x + 1;
    case 3: x ^= plus(b[3]); break;
    case 4: rare(x); x++; break;
    case 5: x += 7; break;
    case 6: sunk++; x -= sunk; break;
    case 7: x = x * x; break;
    default: __builtin_unreachable();
    }
    b[0] = x;
    return minus(b[0]) ^ x;
}

#define PROGRAM(first, second, third, last) \
    goto *list[*p]; \
a:  first; p++; goto *list[*p]; \
b:  second; p++; goto *list[*p]; \
c:  third; p++; goto *list[*p]; \
d:  last

FUNC long goto_leaf(const unsigned char *p, long x) {
    static const void *const list[] = {&&a, &&b, &&c, &&d};
    PROGRAM(x++, x *= 3, x ^= 9, return x);
}
FUNC long goto_frame(const unsigned char *p, long x) {
    static const void *list[] = {&&a, &&b, &&c, &&d};
    PROGRAM(x = plus(x), x = times(x), x = rare(x), return minus(x));
}
FUNC long goto_then_tail(const unsigned char *p, long x) {
    static const void *const list[] = {&&a, &&b, &&c, &&d};
    PROGRAM(x++, x *= 3, x ^= 9, return fixed[x & 3](x));
}

int main(int n, char **args) {
    int rounds = n > 1 ? atoi(args[1]) : 1;
    char line[16];
    for (int i = 0; i < 4; i++) {
        filled[i] = initialized[(i + 1) & 3];
        filled_here[i] = initialized[(i + 2) & 3];
        filled_twos[i].f = filled_threes[i].f = initialized[i];
    }
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 1;
    const unsigned char code[] = {0, 1, 2, 2, 1, 0, 3};
    unsigned long sum = 0;
    for (volatile int r = 0; r < rounds; r++)
        for (volatile int i = 0; i < 8; i++) {
            long x = r + i;
            sum += tail_filled(x, i) + tail_here(x, i) + tail_initialized(x, i) + tail_fixed(x, i) + tail_behind(x, i) + tail_bounded(x, i);
            sum += tail_twos(x, i) + tail_threes(x, i) + tail_fours(x, i) + tail_filled_twos(x, i) + tail_filled_threes(x, i);
            sum += tail_frame(x, i) + tail_either(x, i) + tail_local(x, i);
            sum += switch_leaf(x, i) + switch_calls(x, i) + switch_apart(x, i);
            sum += goto_leaf(code, x) + goto_frame(code, x) + goto_then_tail(code, x);
        }
    printf("done %lu\n", sum);
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 1;
    return 7;
}
