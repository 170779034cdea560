/* A library that cli_selftest maps and lets go of. */
__attribute__((noinline, noclone)) long module_work(long n) {
    __asm__ volatile("" : : : "memory");
    return n * 3;
}
