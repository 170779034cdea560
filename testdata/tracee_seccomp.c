// A process under the seccomp rules that its argument names: "strict",
// "errno", "trap" and "kill", the last three for mmap and memfd_create; "plain",
// without any; "hidden", without any, but not to be traced; and "dispatch", without any, but
// system calls are dispatched to it, apart from its own. Prints its pid first; ends with status 0
// when standard input closes.
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

// call makes a system call.
extern char call_end[];
long call(long nr, long a, const void *b, long c);
asm("call: mov %rdi, %rax; mov %rsi, %rdi; mov %rdx, %rsi; mov %rcx, %rdx; syscall; ret; call_end:");

static volatile char blocks; // for the kernel

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
	else if (!strcmp(m, "dispatch")) {
		if (prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, call, call_end - (char *)call, &blocks))
			return 5;
		blocks = SYSCALL_DISPATCH_FILTER_BLOCK;
	}
	else if (!strcmp(m, "strict"))
		prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
	else if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p))
		return 3;
	if (call(SYS_write, 1, "ready\n", 6) != 6)
		return 4;
	while (call(SYS_read, 0, &c, 1) > 0) {}
	call(SYS_exit, 0, 0, 0);
}
