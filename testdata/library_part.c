// A library that is loaded and unloaded. Its constructor calls part_made and
// counts itself in the program, where there is a counter.
extern long parts_made __attribute__((weak));

__attribute__((noinline, visibility("default"))) long part_made(long n) { __asm__ volatile("" : "+r"(n)); return n + 1; }
__attribute__((noinline, visibility("default"))) long part_work(long n) { __asm__ volatile("" : "+r"(n)); return n * 3 + 1; }

__attribute__((constructor)) static void made(void) {
    if (&parts_made)
        __atomic_add_fetch(&parts_made, part_made(41) == 42, __ATOMIC_RELAXED);
}
