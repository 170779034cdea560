// Prints how far from the thread pointer the C library's rseq area is, or 0 if it has registered none.
#include <stddef.h>
#include <stdio.h>

extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));

int main(void) { printf("%td\n", &__rseq_size && __rseq_size ? __rseq_offset : 0); }
