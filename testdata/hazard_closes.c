// A program whose threads close all descriptors that they don't know, and open files of their own, all the
// time: what another opens in it is gone, and its number has another file. Each file holds what was
// written to it. It prints "ready" first, and at each line of standard input "whole N" after N files, or what is
// wrong with one.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile long files, bad;
static volatile int over;

__attribute__((noipa)) void work(long n) { __asm__ volatile("" : : "r"(n) : "memory"); }

static void *closes(void *a) {
	char got[16];
	while (!over) {
		syscall(SYS_close_range, 3, ~0U, 0);
		for (int i = 0; i < 40; i++) {
			int fd = memfd_create("own", 0);
			if (fd < 0 || write(fd, "own contents", 12) != 12 || pread(fd, got, 16, 0) != 12 || memcmp(got, "own contents", 12)) bad++;
			files++;
			work(files);
		}
	}
	return a;
}

int main(void) {
	char line[64];
	pthread_t t;
	pthread_create(&t, 0, closes, 0);
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		printf(bad ? "bad %ld\n" : "whole %ld\n", bad ? bad : files);
		fflush(stdout);
	}
	over = 1;
	pthread_join(t, 0);
	return bad ? 8 : 7;
}
