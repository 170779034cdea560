// The least that a tracer must do for an int3: a loop of int3 traced by a loop
// of wait, GETREGS, SETREGS, CONT. Prints nanoseconds per stop. With an
// argument it is only the loop: prints its pid, waits for a line, runs that
// many int3 and prints the same.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e9 + t.tv_nsec; }
static void run(int n) {
	double a = now();
	for (int i = 0; i < n; i++)
		__asm__ volatile("int3" ::: "rax"); // the tracer counts in rax
	printf("%.0f\n", (now() - a) / n);
	fflush(stdout);
}
int main(int argc, char **argv) {
	int n = 20000;
	if (argc > 1) {
		char c;
		printf("%d\n", getpid());
		fflush(stdout);
		while (read(0, &c, 1) == 1) run(atoi(argv[1]));
		return 0;
	}
	int go[2];
	if (pipe(go)) return 1;
	pid_t p = fork();
	if (!p) { char c; if (read(go[0], &c, 1) != 1) _exit(1); run(n / 10); run(n); _exit(0); }
	ptrace(PTRACE_SEIZE, p, 0, 0);
	if (write(go[1], "x", 1) != 1) return 1;
	int st;
	while (waitpid(p, &st, __WALL) > 0 && !WIFEXITED(st)) {
		struct user_regs_struct r;
		ptrace(PTRACE_GETREGS, p, 0, &r);
		r.rax++;
		ptrace(PTRACE_SETREGS, p, 0, &r);
		ptrace(PTRACE_CONT, p, 0, 0);
	}
}
