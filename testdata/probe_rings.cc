// Functions that jump to one another in circles. Usage: probe_rings ROUNDS THREADS [DEEPEST]. As probe_calls it prints
// "ready", waits for a line, works, prints "done" and, for each function, its name, how often it was entered, and how
// many of those calls longjmp or an exception has left; and ends with status 7 after another line.
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <pthread.h>

#define F extern "C" __attribute__((noinline, noclone)) long
#define EACH(X) X(two_0) X(two_1) X(three_0) X(three_1) X(three_2) X(seven_0) X(seven_1) X(seven_2) X(seven_3) \
    X(seven_4) X(seven_5) X(seven_6) X(op_0) X(op_1) X(op_2) X(self_op) X(calls_0) X(calls_1) X(leaves_0) X(leaves_1) \
    X(throws_0) X(throws_1) X(enters) X(on_signal)
#define ID(n) N_##n,
#define NAME(n) #n,
enum { EACH(ID) ALL };
static const char *const names[] = { EACH(NAME) };
struct numbers { long in[ALL], left[ALL]; };
static thread_local numbers mine;
static numbers total;
#define IN(n) mine.in[N_##n]++

#define NEXT(n, next) extern "C" long next(long); F n(long x) { IN(n); return x > 0 ? next(x - 1) : x + 3; }
NEXT(two_0, two_1) NEXT(two_1, two_0)
NEXT(three_0, three_1) NEXT(three_1, three_2) NEXT(three_2, three_0)
NEXT(seven_0, seven_1) NEXT(seven_1, seven_2) NEXT(seven_2, seven_3) NEXT(seven_3, seven_4) NEXT(seven_4, seven_5)
NEXT(seven_5, seven_6) NEXT(seven_6, seven_0)
F enters(long x) { IN(enters); return x & 1 ? two_1(x) : three_2(x); }

// Circles through pointers; one to the function itself.
typedef long (*op)(long);
extern "C" long op_0(long), op_1(long), op_2(long), self_op(long);
static const op volatile ops[] = { op_0, op_1, op_2 }, selfs[] = { self_op };
F op_0(long x) { IN(op_0); return x > 0 ? ops[x % 3](x - 1) : x + 3; }
F op_1(long x) { IN(op_1); return x > 0 ? ops[(x + 1) % 3](x - 1) : x + 3; }
F op_2(long x) { IN(op_2); return x > 0 ? ops[(x + 2) % 3](x - 1) : x + 3; }
F self_op(long x) { IN(self_op); return x > 0 ? selfs[0](x - 1) : x + 3; }

// A circle that also calls itself.
static volatile long sunk;
extern "C" long calls_1(long x);
F calls_0(long x) { IN(calls_0); if (x % 3 == 1) sunk = calls_1(x / 2); return x > 0 ? calls_1(x - 1) : x + 3; }
F calls_1(long x) { IN(calls_1); if (x % 3 == 2) sunk = calls_0(x / 3); return x > 0 ? calls_0(x - 1) : x + 3; }

// Circles that are left in their midst, if x is odd at the beginning.
static thread_local jmp_buf away;
static thread_local bool flees;
extern "C" long leaves_1(long x), throws_1(long x);
F leaves_0(long x) { IN(leaves_0); if (flees && x == 0) longjmp(away, 1); return x > 0 ? leaves_1(x - 1) : x + 3; }
F leaves_1(long x) { IN(leaves_1); if (flees && x == 0) longjmp(away, 1); return x > 0 ? leaves_0(x - 1) : x + 3; }
#ifdef THROWS
#define FLEE throw x
#else
#define FLEE longjmp(away, 1)
#endif
F throws_0(long x) { IN(throws_0); if (flees && x == 0) FLEE; return x > 0 ? throws_1(x - 1) : x + 3; }
F throws_1(long x) { IN(throws_1); if (flees && x == 0) FLEE; return x > 0 ? throws_0(x - 1) : x + 3; }

F on_signal(long x) { IN(on_signal); return two_0(x); }
static void handler(int) { sunk = on_signal(5) + three_1(4); }

// One call instruction for all, so that what is left of one call lies where the next returns.
__attribute__((noinline, noclone)) static long site(op f, long x) { return f(x) + 1; }

static const op starts[] = { two_0, two_1, three_0, seven_0, seven_3, op_0, op_2, self_op, calls_0, leaves_0, throws_0, enters };
static long rounds, deepest = 12;

static void *works(void *) {
    for (volatile long r = 0; r < rounds; r++)
        for (volatile long x = 0; x <= deepest; x++)
            for (volatile unsigned i = 0; i < sizeof starts / sizeof *starts; i++)
                // First to flee, then to return with the same stack and to the same place.
                for (volatile int again = 0; again < 2; again++) {
                    static thread_local numbers before;
                    before = mine;
                    flees = !again;
                    bool left = false;
                    if (setjmp(away))
                        left = true;
                    else
#ifdef THROWS
                        try { sunk = site(starts[i], x); } catch (long) { left = true; }
#else
                        sunk = site(starts[i], x);
#endif
                    if (left)
                        for (int n = 0; n < ALL; n++)
                            mine.left[n] += mine.in[n] - before.in[n];
                    else if (i == 2)
                        pthread_kill(pthread_self(), SIGUSR1);
                }
    for (int n = 0; n < ALL; n++) {
        __atomic_fetch_add(&total.in[n], mine.in[n], __ATOMIC_RELAXED);
        __atomic_fetch_add(&total.left[n], mine.left[n], __ATOMIC_RELAXED);
    }
    return nullptr;
}

int main(int argc, char **argv) {
    char line[64];
    puts("ready");
    fflush(stdout);
    if (argc < 3 || !fgets(line, sizeof line, stdin)) return 3;
    rounds = atol(argv[1]);
    int threads = atoi(argv[2]);
    if (argc > 3) deepest = atol(argv[3]);
    signal(SIGUSR1, handler);
    pthread_t t[64];
    for (int i = 0; i < threads; i++) pthread_create(&t[i], nullptr, works, nullptr);
    for (int i = 0; i < threads; i++) pthread_join(t[i], nullptr);
    printf("done");
    for (int n = 0; n < ALL; n++) printf(" %s %ld %ld", names[n], total.in[n], total.left[n]);
    puts("");
    fflush(stdout);
    return fgets(line, sizeof line, stdin) ? 7 : 3;
}
