// Texts in memory that goes away, in the way that a line of standard input names, after work() was
// called with them. Then work() is called with them again, while signals of faults are blocked: who reads
// them kills the program. It prints "WAY N M": N calls with texts that are there, M with others. It prints
// "ready" first, and ends with status 7 when standard input closes.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SIZE (64 << 10)
#define TEXT "a text that is there"

__attribute__((noipa)) void work(const char *s) { __asm__ volatile("" : : "r"(s) : "memory"); }

static const char literal[] = TEXT;
static char variable[] = TEXT;
static int there, gone;

static void shows(const char *s, int times, int *count) {
	for (int i = 0; i < times; i++)
		work(s);
	*count += times;
}

// The place in kprobe's table of known pages where the page at p belongs.
static int slot(const char *p) { return (unsigned long)p >> 12 & 511; }

// A text in memory of five pages whose page has another place than those of the other texts that stay.
static char *apart(char *memory, const char *other) {
	char *p = (char *)(((unsigned long)memory + 4095) & -4096) + 64;
	while (slot(p) == slot(literal) || slot(p) == slot(variable) || slot(p) == slot(other))
		p += 4096;
	return strcpy(p, TEXT);
}

static char *anywhere(void) {
	char *p = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		exit(3);
	strcpy(p + 5000, TEXT);
	return p;
}

static char *file(int *fd, void *at) {
	*fd = memfd_create("file", 0);
	char block[SIZE] = {};
	strcpy(block + 5000, TEXT);
	if (write(*fd, block, SIZE) != SIZE)
		exit(3);
	char *p = mmap(at, SIZE, PROT_READ, MAP_PRIVATE | (at ? MAP_FIXED : 0), *fd, 0);
	if (p == MAP_FAILED)
		exit(3);
	return p;
}

__attribute__((noipa)) static long raw(void *a, long n) {
	long r;
	__asm__ volatile("mov $11, %%eax\n syscall" : "=a"(r) : "D"(a), "S"(n) : "rcx", "r11", "memory"); // munmap
	return r;
}

static void block(int how) {
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGSEGV);
	sigaddset(&set, SIGBUS);
	pthread_sigmask(how, &set, 0);
}

enum { UNMAPPED, MIDDLE, GENERIC, RAW, PROTECTED, MOVED, OVER, GUARDED, FILEOVER, CODE, KINDS };
static const char *kinds[KINDS] = {"unmapped", "middle", "generic", "raw", "protected", "moved", "over", "guarded", "fileover", "code"};
static char *places[KINDS];

static const unsigned char code[] = {0xb8, 11, 0, 0, 0, 0x0f, 0x05, 0xc3}; // munmap

static int take(int kind, char *p, int *fd) {
	void *q;
	int r;
	switch (kind) {
	case UNMAPPED: return munmap(p, SIZE);
	case MIDDLE: return munmap(p + 4096, 4096);
	case GENERIC: return syscall(SYS_munmap, p, SIZE);
	case RAW: return raw(p, SIZE);
	case PROTECTED: return mprotect(p, SIZE, PROT_NONE);
	case MOVED: return mremap(p, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, places[UNMAPPED] + (1 << 30)) == MAP_FAILED;
	case OVER: return mmap(p, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED;
	case GUARDED: return madvise(p, SIZE, 102) && munmap(p, SIZE);
	case FILEOVER:
		file(fd, p);
		shows(p + 5000, 3, &there);
		return ftruncate(*fd, 0);
	case CODE:
		q = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (q == MAP_FAILED)
			return 1;
		memcpy(q, code, sizeof code);
		r = ((int (*)(char *, long))q)(p, SIZE);
		munmap(q, 4096);
		return r;
	}
	return 1;
}

static void goes(int kind) {
	int fd = -1;
	char *p = places[kind];
	shows(p + 5000, 3, &there);
	block(SIG_BLOCK);
	if (take(kind, p, &fd))
		exit(4);
	shows(p + 5000, 2, &gone);
	block(SIG_UNBLOCK);
	if (fd >= 0)
		close(fd);
}

int main(void) {
	char line[32], deep[5 * 4096], *heap = apart(malloc(5 * 4096), literal), *stack = apart(deep, heap);
	char *edge = sbrk(4 << 20), *low;
	strcpy(edge + (3 << 20), TEXT);
	for (int i = 0; i < KINDS; i++)
		places[i] = anywhere();
	int oldfd, fd;
	char *old = file(&oldfd, 0);
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		line[strcspn(line, "\n")] = 0;
		there = gone = 0;
		for (int i = 0; i < KINDS; i++)
			if (!strcmp(line, kinds[i]))
				goes(i);
		if (!strcmp(line, "stays")) {
			shows(heap, 2, &there);
			shows(literal, 2, &there);
			shows(variable, 2, &there);
			shows(stack, 2, &there);
		} else if (!strcmp(line, "truncated")) {
			shows(old + 5000, 2, &there);
			block(SIG_BLOCK);
			if (ftruncate(oldfd, 0))
				exit(4);
			shows(old + 5000, 2, &gone);
			block(SIG_UNBLOCK);
		} else if (!strcmp(line, "later")) {
			char *p = file(&fd, 0);
			shows(p + 5000, 2, &there);
			block(SIG_BLOCK);
			if (ftruncate(fd, 0))
				exit(4);
			shows(p + 5000, 2, &gone);
			block(SIG_UNBLOCK);
		} else if (!strcmp(line, "lower")) {
			shows(edge + (3 << 20), 2, &there);
			block(SIG_BLOCK);
			if (brk(edge))
				exit(4);
			shows(edge + (3 << 20), 2, &gone);
			block(SIG_UNBLOCK);
		} else if (!strcmp(line, "grown")) {
			low = sbrk(8 << 20);
			strcpy(low + (7 << 20), TEXT);
			shows(low + (7 << 20), 2, &there);
			block(SIG_BLOCK);
			if (brk(low + (6 << 20)))
				exit(4);
			shows(low + (7 << 20), 2, &gone);
			block(SIG_UNBLOCK);
		}
		printf("%s %d %d\n", line, there, gone);
		fflush(stdout);
	}
	return 7;
}
