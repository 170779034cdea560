// Calls functions whose implementation a resolver chooses (IFUNC), late: ten times
// each. It ends with status 7.
#include <math.h>
#include <stdio.h>
#include <string.h>

static volatile double x = 0.5;
static char text[64] = "text";

int main(void) {
    double sum = 0;
    size_t n = 0;
    for (int i = 0; i < 10; i++) {
        sum += sin(x);
        char *volatile s = text;
        n += strnlen(s, 5);
    }
    return n == 40 && sum > 4.7 && sum < 4.8 ? 7 : 1;
}
