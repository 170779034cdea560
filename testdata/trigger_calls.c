/* trigger_calls THREADS: prints "ready", and answers each line with "done":
 *   go N      every thread calls hit(1) … hit(N), all at once, and each time back(I)
 *   turn N    every thread calls up(1) … up(N) and down(1) … down(N), all at once
 *   mark K    this thread calls mark(K)
 *   ret V     this thread calls back(V), which returns V
 *   name S    this thread calls named(S)
 *   fork K    a child calls mark(K) and hit(1) … hit(10), and ends
 *   obj N     N times: an object is made, written to by this thread and by another that is new,
 *             destroyed, and written to once more
 *   die       it kills itself by SIGSEGV
 * An empty line ends it, with status 7. */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define FN __attribute__((noinline, noclone))
#define KEEP(x) __asm__ volatile("nopl 16(%%rax,%%rax)\n\tnopl 16(%%rax,%%rax)" : "+r"(x) : : "memory") /* room for jumps */

FN void hit(uint64_t n) { KEEP(n); }
FN uint64_t back(uint64_t v) { KEEP(v); return v; }
FN void up(uint64_t n) { KEEP(n); }
FN void down(uint64_t n) { KEEP(n); }
FN void mark(uint64_t k) { KEEP(k); }
FN void named(const char *s) { KEEP(s); }

struct obj { uint64_t head, field; };

FN struct obj *make_obj(struct obj *o) { KEEP(o); return o; }
FN void store(struct obj *o, uint64_t v) { o->head = v; o->field = v; KEEP(o); }
FN void kill_obj(struct obj *o) { KEEP(o); }

static void *writer(void *p) { store(p, 2); return p; }

static void objects(long n) {
    static struct obj all[2];
    for (long i = 0; i < n; i++) {
        struct obj *o = make_obj(&all[i % 2]), *other = &all[(i + 1) % 2];
        pthread_t t;
        store(o, 1);
        store(other, 77);
        pthread_create(&t, NULL, writer, o);
        pthread_join(t, NULL);
        kill_obj(o);
        store(o, 99);
    }
}

static pthread_barrier_t begin, end;
static volatile long todo;
static volatile int kind;

static void *run(void *p) {
    for (;;) {
        pthread_barrier_wait(&begin);
        for (long i = 1; i <= todo; i++) {
            if (kind == 0) {
                hit(i);
                back(i);
            } else {
                up(i);
                down(i);
            }
        }
        pthread_barrier_wait(&end);
    }
    return p;
}

static void all(int what, long n) {
    todo = n;
    kind = what;
    pthread_barrier_wait(&begin);
    pthread_barrier_wait(&end);
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    pthread_barrier_init(&begin, NULL, threads + 1);
    pthread_barrier_init(&end, NULL, threads + 1);
    for (int i = 0; i < threads; i++) {
        pthread_t t;
        if (pthread_create(&t, NULL, run, NULL))
            return 1;
    }
    char line[256], word[16], rest[200];
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        rest[0] = 0;
        if (sscanf(line, "%15s %199s", word, rest) < 1)
            break;
        long n = strtol(rest, NULL, 0);
        if (!strcmp(word, "go"))
            all(0, n);
        else if (!strcmp(word, "turn"))
            all(1, n);
        else if (!strcmp(word, "mark"))
            mark(n);
        else if (!strcmp(word, "ret"))
            back(n);
        else if (!strcmp(word, "name"))
            named(rest);
        else if (!strcmp(word, "obj"))
            objects(n);
        else if (!strcmp(word, "fork")) {
            pid_t kid = fork();
            if (kid == 0) {
                mark(n);
                for (uint64_t i = 1; i <= 10; i++)
                    hit(i);
                _exit(0);
            }
            waitpid(kid, NULL, 0);
        } else if (!strcmp(word, "die"))
            raise(SIGSEGV);
        puts("done");
        fflush(stdout);
    }
    return 7;
}
