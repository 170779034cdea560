// The program of package probe's examples: three withdrawals from an account.
#include <stdio.h>

struct account { int id; long cents; };

__attribute__((noinline, noclone)) int withdraw(struct account *a, long cents) {
    __asm__ volatile("" : : "r"(a) : "memory"); // all of it is looked at
    if (cents > a->cents) return -1;
    a->cents -= cents;
    return 0;
}

int main(void) {
    struct account a = {7, 1000};
    const long cents[] = {300, 900, 200};
    for (int i = 0; i < 3; i++) printf("%ld: %s\n", cents[i], withdraw(&a, cents[i]) == 0 ? "paid" : "refused");
    printf("left: %ld\n", a.cents);
    return 0;
}
