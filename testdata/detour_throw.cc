// Patches its own function work with a jump to code that a test laid out (as detour_exec.c maps it) and throws through it:
//   detour_throw FILE TARGET FRAMES N
// Prints how many exceptions were caught, what the calls returned, and how many frames a backtrace in work has more than without.
#include <execinfo.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern "C" void __register_frame(void *);
static int frames;

extern "C" __attribute__((noinline, patchable_function_entry(16))) long work(long i, long depth) {
    void *at[64];
    int n = backtrace(at, 64);
    if (depth == 0) frames = n;
    if (depth > 0) return work(i, depth - 1) + 1;
    if (i % 3 == 0) throw i;
    return i;
}

int main(int argc, char **argv) {
    if (argc < 5) return 98;
    uint64_t seg[4 * 256];
    int fd = open(argv[1], O_RDWR);
    if (fd < 0 || pread(fd, seg, sizeof seg, 0) <= 0) return 97;
    for (uint64_t *s = seg; s < seg + 4 * 256 && s[2]; s += 4)
        if (mmap((void *)s[0], s[2], s[3] & 7, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, s[1]) != (void *)s[0]) return 96;
    work(1, 5);
    int before = frames;
    char *p = (char *)work;
    mprotect((void *)((uintptr_t)p & ~4095UL), 8192, PROT_READ | PROT_WRITE | PROT_EXEC);
    int32_t d = (int32_t)(strtoull(argv[2], 0, 16) - ((uint64_t)p + 5));
    p[0] = (char)0xe9;
    memcpy(p + 1, &d, 4);
    __register_frame((void *)strtoull(argv[3], 0, 16));
    long caught = 0, sum = 0;
    for (long i = 0; i < atol(argv[4]); i++) {
        try {
            sum += work(i, i % 4);
        } catch (long v) {
            caught += v == i;
        }
    }
    work(1, 5);
    printf("%ld %ld %d %d\n", caught, sum, before, frames);
}
