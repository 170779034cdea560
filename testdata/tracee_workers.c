// A process that /proc tells other things of than of most; prints its pid, then
// "ready". It calls site() until standard input closes, and ends with status 0.
//
//	sqpoll   a thread of the kernel's polls an io_uring of it (iou-sqp-…)
//	worker   one waits in a read that an io_uring was given (iou-wrk-…)
//	leader   its main thread has ended, as pthread_exit in main does it
#include <errno.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

volatile long count;
__attribute__((noinline)) void site(void) { __asm__ volatile("site_int3: nop; nop"); count++; }

static void *work(void *ready) {
	struct pollfd p = {0, POLLIN, 0};
	char c;
	if (ready) {
		char path[64], line[256] = "";
		snprintf(path, sizeof path, "/proc/self/task/%d/stat", getpid());
		while (!strstr(line, ") Z")) {
			FILE *f = fopen(path, "r");
			if (!f || !fgets(line, sizeof line, f)) exit(7);
			fclose(f);
			usleep(1000);
		}
	}
	printf("ready\n");
	fflush(stdout);
	while (poll(&p, 1, 1) == 0 || read(0, &c, 1) > 0)
		site();
	exit(0);
}

int main(int argc, char **argv) {
	pthread_t t;
	printf("%d\n", getpid());
	fflush(stdout);
	if (!strcmp(argv[1], "leader")) {
		pthread_create(&t, 0, work, &t);
		pthread_exit(0);
	}
	struct io_uring_params p = {0};
	if (!strcmp(argv[1], "sqpoll")) {
		p.flags = IORING_SETUP_SQPOLL;
		p.sq_thread_idle = 1000;
	}
	int fd = syscall(SYS_io_uring_setup, 8, &p);
	if (fd < 0) {
		printf("refused %d\n", errno);
		return 0;
	}
	if (!strcmp(argv[1], "worker")) {
		int ends[2];
		static char b[1];
		char *sq = mmap(0, p.sq_off.array + p.sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED, fd, IORING_OFF_SQ_RING);
		struct io_uring_sqe *e = mmap(0, p.sq_entries * sizeof *e, PROT_READ | PROT_WRITE, MAP_SHARED, fd, IORING_OFF_SQES);
		if (pipe(ends) || sq == MAP_FAILED || e == MAP_FAILED) return 8;
		memset(e, 0, sizeof *e);
		e->opcode = IORING_OP_READ;
		e->flags = IOSQE_ASYNC;
		e->fd = ends[0];
		e->addr = (unsigned long)b;
		e->len = 1;
		((unsigned *)(sq + p.sq_off.array))[0] = 0;
		__atomic_store_n((unsigned *)(sq + p.sq_off.tail), 1, __ATOMIC_RELEASE);
		if (syscall(SYS_io_uring_enter, fd, 1, 0, 0, 0, 0) != 1) return 9;
	}
	work(0);
}
