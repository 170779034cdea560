/* Says whether this machine's debug registers trap: a child watches a variable
 * of its own, by its parent, and writes to it. Some virtual machines keep what
 * is written to the registers, and nothing else. Prints "yes" or "no". */
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile long watched;

/* reg is the offset of a debug register in the child's struct user. */
static void *reg(int n) { return (void *)(offsetof(struct user, u_debugreg) + n * sizeof(long)); }

int main(void)
{
	int status;
	pid_t child = fork();
	if (!child) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		raise(SIGSTOP);
		watched = 1;
		_exit(0);
	}
	if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status))
		return 1;
	/* Register 0: writes (1 << 16) of 8 bytes (2 << 18), by this task. */
	if (ptrace(PTRACE_POKEUSER, child, reg(0), &watched) || ptrace(PTRACE_POKEUSER, child, reg(7), 1L | 1L << 16 | 2L << 18))
		return 1;
	if (ptrace(PTRACE_CONT, child, 0, 0) || waitpid(child, &status, 0) != child)
		return 1;
	puts(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP ? "yes" : "no");
	kill(child, SIGKILL);
	return 0;
}
