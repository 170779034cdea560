// Memory that the program fills itself (userfaultfd): absent_pages. It prints
// "ready ADDRESS", of that memory; after a line it calls touch for pages that nobody has touched, which
// its other thread fills by calling fill, prints "done SUM" and ends with status 7
// after another line. Without the right to it, it prints "no userfaultfd". With the argument "user" it asks
// only for faults of its own code, not of the kernel's.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 4 };
static int fd;
static char *region;
static char page[PAGE] __attribute__((aligned(PAGE)));

__attribute__((noinline)) long touch(volatile long *p) { __asm__ volatile(""); return *p; }

__attribute__((noinline)) int fill(unsigned long at) {
    long n = 100 + (long)((at - (unsigned long)region) / PAGE);
    memcpy(page, &n, sizeof n);
    struct uffdio_copy c = {.dst = at & -(unsigned long)PAGE, .src = (unsigned long)page, .len = PAGE};
    return ioctl(fd, UFFDIO_COPY, &c);
}

static void *filler(void *unused) {
    struct uffd_msg m;
    while (read(fd, &m, sizeof m) == sizeof m)
        if (m.event == UFFD_EVENT_PAGEFAULT) fill(m.arg.pagefault.address);
    return unused;
}

int main(int argc, char **argv) {
    char line[16];
    int user = argc > 1 && !strcmp(argv[1], "user") ? UFFD_USER_MODE_ONLY : 0;
    fd = syscall(SYS_userfaultfd, O_CLOEXEC | user);
    if (fd < 0) {
        int dev = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
        fd = dev < 0 ? -1 : ioctl(dev, USERFAULTFD_IOC_NEW, O_CLOEXEC | user);
    }
    struct uffdio_api api = {.api = UFFD_API};
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api)) { puts("no userfaultfd"); return 7; }
    region = mmap(0, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct uffdio_register r = {.range = {(unsigned long)region, PAGES * PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (ioctl(fd, UFFDIO_REGISTER, &r)) { puts("no userfaultfd"); return 7; }
    pthread_t t;
    pthread_create(&t, 0, filler, 0);
    printf("ready %p\n", (void *)region); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 3;
    long sum = 0;
    for (int i = 0; i < PAGES; i++) sum += touch((long *)(region + i * PAGE));
    printf("done %ld\n", sum); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 3;
    return 7;
}
