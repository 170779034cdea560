// A process under the seccomp rules that its argument names: "strict",
// "errno", "trap" and "kill", the last three for mmap and memfd_create; "plain",
// without any; and "hidden", without any, but not to be traced. Prints its pid first; ends with
// status 0 when standard input closes.
#define _GNU_SOURCE
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

int main(int argc, char **argv) {
	char c;
	const char *m = argv[1];
	unsigned action = !strcmp(m, "errno") ? SECCOMP_RET_ERRNO | 1 : !strcmp(m, "trap") ? SECCOMP_RET_TRAP : SECCOMP_RET_KILL_PROCESS;
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ, SYS_mmap, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ, SYS_memfd_create, 0, 1),
		BPF_STMT(BPF_RET, action),
		BPF_STMT(BPF_RET, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog p = {5, f};
	printf("%d\n", getpid());
	fflush(stdout);
	if (!strcmp(m, "plain")) {
	} else if (!strcmp(m, "hidden"))
		prctl(PR_SET_DUMPABLE, 0);
	else if (!strcmp(m, "strict"))
		prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
	else if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p))
		return 3;
	if (write(1, "ready\n", 6) != 6)
		return 4;
	while (read(0, &c, 1) > 0) {}
	syscall(SYS_exit, 0);
}
