// One mode for each thing that happens to processes; prints its pid first.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>
#include <errno.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

extern char **environ;
static volatile int stop, count;
static volatile long made;

__attribute__((noinline)) void site(void) { __asm__ volatile("site_int3: nop; nop"); count++; }

static void *nothing(void *a) { return a; }
static void *churn(void *a) {
	while (!stop) {
		pthread_t t;
		if (pthread_create(&t, 0, nothing, 0) == 0) { pthread_join(t, 0); made++; }
	}
	return 0;
}
static void *reader(void *a) { char c; while (read(0, &c, 1) > 0) {} stop = 1; return 0; }

static int order[64], values[64], codes[64], seen;
static void info(int s, siginfo_t *i, void *u) {
	if (seen < 64) { order[seen] = s; values[seen] = i->si_value.sival_int; codes[seen] = i->si_code; seen++; }
}
static volatile long ticks;
static void tick(int s) { ticks++; }
static void trap(int s) {}
static void *execer(void *a) { execl("/bin/sh", "sh", "-c", "exit 5", (char *)0); return 0; }
static void *looper(void *a) { while (!stop) site(); return 0; }
static void *sleeping(void *a) { for (;;) pause(); }
static void *gone(void *a) { char c; usleep(100000); exit(read(0, &c, 1) < 0 ? 9 : 6); }

static pthread_t first;
static volatile int handled, bad;
static void numbered(int s, siginfo_t *i, void *u) {
	if (i->si_code != SI_QUEUE || i->si_value.sival_int != handled + 1) bad = 1;
	handled++;
}
static void plain(int s) { handled++; }
// Sends the first thread one signal after another, each when the one before was
// handled.
static void *sender(void *a) {
	for (int i = 1; !stop; i++) {
		union sigval v = {.sival_int = i};
		if (i % 2 ? pthread_sigqueue(first, 40, v) : pthread_kill(first, SIGUSR1)) _exit(21);
		for (int n = 0; handled < i; n++) {
			if (n > 100000) _exit(22); // lost: ten seconds
			usleep(100);
		}
		if (handled != i || bad) _exit(23);
	}
	return 0;
}

static void *stats(void *path) {
	struct stat st;
	return (void *)(long)(stat(path, &st) == 0 || errno != ENOENT);
}

int main(int argc, char **argv) {
	const char *m = argv[1];
	pthread_t t;
	printf("%d\n", getpid());
	fflush(stdout);
#define IS(x) else if (!strcmp(m, x))
	if (0) {}
	IS("storm") {
		pthread_create(&t, 0, reader, 0);
		pthread_t u[4];
		for (int i = 0; i < 4; i++) pthread_create(&u[i], 0, churn, 0);
		for (int i = 0; i < 4; i++) pthread_join(u[i], 0);
		return made == 0;
	}
	IS("forks") {
		char c;
		if (read(0, &c, 1) < 0) return 9;
		for (int i = 0; i < 20; i++) {
			int st;
			pid_t p = fork();
			if (!p) { site(); _exit(11); }
			if (waitpid(p, &st, 0) != p || WEXITSTATUS(st) != 11) return 1;
			p = vfork();
			if (!p) { site(); _exit(12); }
			if (waitpid(p, &st, 0) != p || WEXITSTATUS(st) != 12) return 2;
			p = vfork();
			if (!p) { site(); execl("/bin/sh", "sh", "-c", "exit 13", (char *)0); _exit(1); }
			if (waitpid(p, &st, 0) != p || WEXITSTATUS(st) != 13) return 3;
			char *a[] = {"sh", "-c", "exit 14", 0};
			if (posix_spawn(&p, "/bin/sh", 0, 0, a, environ)) return 4;
			if (waitpid(p, &st, 0) != p || WEXITSTATUS(st) != 14) return 5;
			site();
		}
		return 0;
	}
	IS("exec") { char c; if (read(0, &c, 1) < 0) return 9; pthread_t u[5]; for (int i = 0; i < 5; i++) pthread_create(&u[i], 0, looper, 0); pthread_create(&t, 0, execer, 0); pause(); }
	IS("execs") { char c; pthread_create(&t, 0, looper, 0); if (read(0, &c, 1) < 0) return 9; execl("/bin/sh", "sh", "-c", "exit 15", (char *)0); return 1; }
	IS("leader") { pthread_create(&t, 0, gone, 0); pthread_exit(0); }
	IS("signals") {
		struct sigaction sa = {.sa_sigaction = info, .sa_flags = SA_SIGINFO};
		sigset_t all, old;
		sigfillset(&sa.sa_mask); // info isn't written to be interrupted by itself
		for (int s = 40; s < 44; s++) { sigaction(s, &sa, 0); }
		sigaction(SIGUSR1, &sa, 0);
		char c;
		if (read(0, &c, 1) < 0) return 9;
		sigfillset(&all);
		sigprocmask(SIG_BLOCK, &all, &old);
		for (int i = 0; i < 20; i++) { union sigval v = {.sival_int = 100 + i}; sigqueue(getpid(), 40 + i % 4, v); }
		syscall(SYS_tgkill, getpid(), getpid(), SIGUSR1);
		sigprocmask(SIG_SETMASK, &old, 0);
		for (int i = 0; i < seen; i++) printf("%d:%d:%d ", order[i], values[i], codes[i]);
		printf("\n");
		return seen != 21;
	}
	IS("sigprof") {
		struct itimerval it = {{0, 100}, {0, 100}};
		signal(SIGPROF, tick);
		setitimer(ITIMER_PROF, &it, 0);
		pthread_create(&t, 0, reader, 0);
		while (!stop || !ticks) site();
		return 0;
	}
	IS("blocked") {
		struct sigaction sa = {.sa_handler = trap, .sa_flags = SA_RESTART}, o;
		sigset_t s, q;
		char c;
		sigaddset(&sa.sa_mask, SIGUSR2);
		sigaction(SIGTRAP, &sa, 0);
		sigemptyset(&s);
		sigaddset(&s, SIGTRAP);
		printf("ready\n");
		fflush(stdout);
		if (read(0, &c, 1) < 0) return 9;
		site();
		sigprocmask(SIG_BLOCK, &s, 0);
		for (int i = 0; i < 10; i++) {
			site();
			sigprocmask(0, 0, &q);
			sigaction(SIGTRAP, 0, &o);
			if (!sigismember(&q, SIGTRAP)) return 1;
			if (o.sa_handler != trap) return 2;
			if ((o.sa_flags & ~0x04000000) != SA_RESTART || !sigismember(&o.sa_mask, SIGUSR2)) return 3;
		}
		sigprocmask(SIG_UNBLOCK, &s, 0);
		site();
		sigprocmask(0, 0, &q);
		if (sigismember(&q, SIGTRAP)) return 4;
		return 0;
	}
	IS("loop") { pthread_t u[8]; int n = argc > 2 ? atoi(argv[2]) : 1; pthread_create(&t, 0, reader, 0); for (int i = 0; i < n; i++) pthread_create(&u[i], 0, looper, 0); for (int i = 0; i < n; i++) pthread_join(u[i], 0); return count == 0; }
	IS("numbered") {
		struct sigaction n = {.sa_sigaction = numbered, .sa_flags = SA_SIGINFO}, o = {.sa_handler = plain};
		sigaction(40, &n, 0);
		sigaction(SIGUSR1, &o, 0);
		first = pthread_self();
		pthread_t u;
		pthread_create(&u, 0, sender, 0);
		pthread_create(&t, 0, reader, 0);
		while (!stop) { if (argc > 2) usleep(10000); else count++; }
		pthread_join(u, 0);
		printf("%d\n", handled);
		return handled < 2;
	}
	IS("stat") {
		// A second thread asks for a file that isn't there.
		char c;
		void *bad;
		pthread_create(&t, 0, stats, argv[2]);
		while (read(0, &c, 1) > 0) {}
		pthread_join(t, &bad);
		return bad != 0;
	}
	IS("idle") { pthread_create(&t, 0, reader, 0); while (!stop) usleep(1000); return 0; }
	IS("crowd") {
		// As many threads as the second argument says, that wait.
		pthread_attr_t at;
		pthread_attr_init(&at);
		pthread_attr_setstacksize(&at, 32768);
		for (int i = atoi(argv[2]); i > 0; i--)
			if (pthread_create(&t, &at, sleeping, 0)) return 1;
		printf("ready\n");
		fflush(stdout);
		char c;
		while (read(0, &c, 1) > 0) {}
		return 0;
	}
	IS("orphan") {
		// A child that goes on when its parent is killed.
		char c;
		if (read(0, &c, 1) != 1) return 9;
		if (fork()) pause();
		site();
		return write(1, "child\n", 6) != 6;
	}
	IS("vforks") {
		// A parent that waits in vfork until the child has read a byte.
		char b;
		if (read(0, &b, 1) != 1) return 9;
		pid_t p = vfork();
		if (!p) { char c; _exit(write(1, "ready\n", 6) == 6 && read(0, &c, 1) == 1 ? 3 : 4); }
		int st;
		if (waitpid(p, &st, 0) != p || WEXITSTATUS(st) != 3) return 1;
		return 0;
	}
	return 8;
}
