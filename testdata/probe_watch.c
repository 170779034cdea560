/* Programs whose memory is watched. Says "ready", works after a line, says "done SUM",
   and ends with status 7 after another line. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct conn {
	int state;
	short port;
	char name[6];
	double rate;
	struct conn *next;
};
enum color { RED, GREEN = 7 };

volatile long counter;
volatile int flags[4];
volatile signed char byte = -1;
volatile enum color paint;
struct conn first = { 1, 80, "first", 1.5, 0 };
struct conn *volatile head = &first;
char text[64];
__thread volatile long mine;
static volatile long hidden;

#define NOINLINE __attribute__((noinline, noclone))

NOINLINE void add(long n) { counter += n; }
NOINLINE long get(void) { return counter; }
NOINLINE void set(long n) { counter = n; }
NOINLINE void same(void) { counter = counter; }
NOINLINE void put(struct conn *c, int state) { c->state = state; }
NOINLINE void fill(char *to, const char *from, size_t n)
{
	__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
}
NOINLINE long load(long *p)
{
	long v;
	__asm__ volatile("mov (%1), %1\n\tmov %1, %0" : "=r"(v), "+r"(p) : : "memory");
	return v;
}
NOINLINE void push(void)
{
	__asm__ volatile("push counter(%%rip)\n\tpop counter(%%rip)" : : : "memory");
}

static void *worker(void *arg)
{
	for (long i = 0, n = (long)arg; i < n; i++)
		__atomic_add_fetch(&counter, 1, __ATOMIC_SEQ_CST);
	mine++;
	return 0;
}

static void *slowly(void *arg)
{
	while (counter < (long)arg) {
		add(1);
		usleep(150);
	}
	return 0;
}

static void threads(int n, long each)
{
	pthread_t t[64];
	for (int i = 0; i < n; i++)
		pthread_create(&t[i], 0, worker, (void *)each);
	for (int i = 0; i < n; i++)
		pthread_join(t[i], 0);
}

static volatile sig_atomic_t traps;
static void on_trap(int sig) { traps++; }

static long work(const char *mode, int n)
{
	long sum = 0;
	if (!strcmp(mode, "plain")) {
		for (int i = 0; i < n; i++) {
			add(2);
			sum += get();
			set(i);
			same();
			push();
			sum += load((long *)&counter);
			put(&first, i);
			flags[i & 3] = i;
			byte = -i;
			paint = i & 1 ? GREEN : RED;
			hidden += i;
		}
		fill(text, "abcdefghijklmnopqrstuvwxyz0123456789abcdefghijkl", 48);
	} else if (!strcmp(mode, "threads")) {
		threads(4, n);
		add(1);
		threads(3, n);
		sum = counter;
	} else if (!strcmp(mode, "blocked")) { /* SIGTRAP blocked, ignored, with a handler */
		sigset_t set, old;
		sigfillset(&set);
		sigprocmask(SIG_SETMASK, &set, &old);
		for (int i = 0; i < n; i++)
			add(1);
		sigprocmask(SIG_SETMASK, &old, 0);
		sigprocmask(SIG_BLOCK, 0, &old);
		sum = counter + sigismember(&old, SIGTRAP);
		struct sigaction act = { .sa_handler = on_trap };
		sigaction(SIGTRAP, &act, 0);
		for (int i = 0; i < n; i++) {
			add(1);
			raise(SIGTRAP);
			__asm__ volatile("int3");
		}
		sum += counter + traps * 1000;
	} else if (!strcmp(mode, "children")) {
		for (int i = 0; i < n; i++) {
			int st;
			pid_t pid = i & 1 ? vfork() : fork();
			if (pid == 0) {
				add(1);
				add(1);
				_exit(3);
			}
			waitpid(pid, &st, 0);
			sum += WIFEXITED(st) ? WEXITSTATUS(st) : 1000;
		}
		sum += counter;
	} else if (!strcmp(mode, "kernel")) {
		int p[2];
		if (pipe(p))
			return -1;
		for (int i = 0; i < n; i++) {
			long v = i;
			if (write(p[1], &v, sizeof v) != sizeof v || read(p[0], (void *)&counter, sizeof v) != sizeof v)
				return -1;
			add(100);
		}
		sum = counter;
	} else if (!strcmp(mode, "steady")) { /* with all signals blocked, on two threads */
		pthread_t t;
		pthread_create(&t, 0, slowly, (void *)(long)n);
		sigset_t set;
		sigfillset(&set);
		pthread_sigmask(SIG_SETMASK, &set, 0);
		for (;;) {
			add(1);
			usleep(100);
			if (counter >= n)
				break;
		}
		pthread_join(t, 0);
		sum = counter >= n;
	}
	return sum;
}

int main(int argc, char **argv)
{
	char line[8];
	setvbuf(stdout, 0, _IOLBF, 0);
	printf("ready\n");
	if (!fgets(line, sizeof line, stdin))
		return 1;
	printf("done %ld\n", work(argv[1], atoi(argv[2])));
	if (!fgets(line, sizeof line, stdin))
		return 1;
	return 7;
}
