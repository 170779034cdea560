// Loads a library with thread-local variables and unloads it, again and again.
// argv: the library, how often.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	char line[16];
	long sum = 0;
	puts("ready");
	fflush(stdout);
	if (!fgets(line, sizeof line, stdin))
		return 1;
	for (long i = 1; i <= atol(argv[2]); i++) {
		void *part = dlopen(argv[1], RTLD_NOW);
		long (*set)(long) = part ? (long (*)(long))dlsym(part, "part_set") : 0;
		if (!set) {
			fprintf(stderr, "%s\n", dlerror());
			return 1;
		}
		sum += set(i);
		dlclose(part);
	}
	printf("done %ld\n", sum);
	fflush(stdout);
	if (!fgets(line, sizeof line, stdin))
		return 1;
	return 7;
}
