// A call that has jumped to another function is left by an exception. While the next call from the same instruction, of a
// function that doesn't jump, is under way, another thread makes the first call that jumps to unknown code from there.
// It prints "ready", waits for a line, works, prints "done", and ends after another line.
#include <cstdio>
#include <pthread.h>
#include <semaphore.h>
#define FUNC extern "C" __attribute__((noinline, noclone, used))

typedef long (*op)(long);
static volatile long sunk;
static sem_t inside, over;

FUNC long unknown(long x) { sunk = x; return x + 1; } // nobody probes it
static op second[] = {unknown, unknown};
FUNC long throws(long x)
{
    sunk = x;
    if (x > 1) throw 1;
    return second[x](x);
}
static op first[] = {unknown, unknown, throws};
FUNC long jumps(long x) { sunk = 1; return first[x](x); }
FUNC long waits(long x)
{
    sem_post(&inside);
    sem_wait(&over);
    return x;
}

// Calls op.
FUNC long site(long x, op f);
asm(R"(
	.text
	.type site, @function
	.globl site
site:
	.cfi_startproc
	sub $8, %rsp
	.cfi_adjust_cfa_offset 8
	call *%rsi
	add $8, %rsp
	.cfi_adjust_cfa_offset -8
	ret
	.cfi_endproc
	.size site, .-site
)");

FUNC void *other(void *)
{
    for (long i = 2; i >= 0; i -= 2) {
        try {
            sunk = site(i, i ? jumps : waits);
        } catch (int) {
        }
    }
    return 0;
}

int main()
{
    char line[64];
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 3;
    sem_init(&inside, 0, 0);
    sem_init(&over, 0, 0);
    pthread_t t;
    pthread_create(&t, 0, other, 0);
    sem_wait(&inside);
    sunk = site(1, jumps);
    sem_post(&over);
    pthread_join(t, 0);
    puts("done");
    fflush(stdout);
    return fgets(line, sizeof line, stdin) ? 7 : 3;
}
