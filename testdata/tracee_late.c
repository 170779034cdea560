// A process one of whose threads can be made to wait uninterruptibly: another
// holds a pipe's lock while it waits for a page that the first is to fill. Prints
// its pid, the pipe's descriptor and the number of the thread that works. A line
// on standard input fills the page. The worker may not call getppid
// (seccomp): it ends the process with status 5 if it can, and with status 0 when
// standard input closes.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int ends[2];
static char *page;
static volatile int tid, stop;

static void *hold(void *a) { return (void *)(long)(write(ends[1], page, 4096) != 4096); }

static void *work(void *a) {
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ, SYS_getppid, 0, 1),
		BPF_STMT(BPF_RET, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog p = {4, f};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p)) exit(4);
	tid = syscall(SYS_gettid);
	while (!stop) {
		sigset_t none, now;
		sigemptyset(&none);
		if (syscall(SYS_getppid) != -1) exit(5);
		pthread_sigmask(SIG_BLOCK, 0, &now);
		if (sigismember(&now, SIGUSR1)) exit(6);
	}
	return a;
}

int main(void) {
	char c;
	pthread_t t, u;
	printf("%d\n", getpid());
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC);
	struct uffdio_api api = {.api = UFFD_API};
	page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct uffdio_register r = {{(unsigned long)page, 4096}, UFFDIO_REGISTER_MODE_MISSING};
	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &r)) {
		printf("refused %d\n", errno);
		return 0;
	}
	if (pipe(ends)) return 3;
	pthread_create(&t, 0, hold, 0);
	pthread_create(&u, 0, work, 0);
	while (!tid) usleep(1000);
	struct uffd_msg m;
	if (read(fd, &m, sizeof m) != sizeof m) return 7;
	printf("%d %d\n", ends[0], tid);
	fflush(stdout);
	if (read(0, &c, 1) != 1) return 8;
	struct uffdio_zeropage z = {{(unsigned long)page, 4096}, 0};
	if (ioctl(fd, UFFDIO_ZEROPAGE, &z)) return 9;
	while (read(0, &c, 1) > 0) {}
	stop = 1;
	pthread_join(t, 0);
	pthread_join(u, 0);
	return 0;
}
