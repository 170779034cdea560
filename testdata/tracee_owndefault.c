// Its handler of SIGTRAP makes SIG_DFL the action and sends itself the signal again,
// so that it dies of it: as a crash reporter does ("libc"), or as kprobe's fallback
// handler does ("raw": an action of zeros). It waits for a line first.
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int raw;
static long calls;

static void handler(int sig) {
	if (++calls > 200) _exit(3); // somebody gives it its handler back for ever
	unsigned long zeros[4] = {0};
	if (raw) syscall(SYS_rt_sigaction, sig, zeros, 0, 8);
	else signal(sig, SIG_DFL);
	raise(sig); // blocked until the handler returns
}

int main(int argc, char **argv) {
	(void)argc;
	raw = !strcmp(argv[1], "raw");
	struct sigaction a = {.sa_handler = handler};
	sigaddset(&a.sa_mask, SIGUSR1); // unlike what signal leaves
	sigaction(SIGTRAP, &a, 0);
	printf("%d\nready\n", getpid());
	fflush(stdout);
	getchar();
	raise(SIGTRAP);
	return 4;
}
