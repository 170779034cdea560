/* Functions whose names the tests of trace lines print. */
__attribute__((noinline)) int work(int n) { return n * 3 + 1; }

__attribute__((noinline)) int caller(int n) { return work(n) + work(n + 1); }

int main(int argc, char **argv) {
    (void)argv;
    return caller(argc) == 0;
}
