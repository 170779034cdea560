// A thread uses a library, which is unloaded; another takes its number, and the
// thread calls it without having used its thread-local variables.
// argv: the two libraries.
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>

static long (*call)(long);
static sem_t go, did;

static void *work(void *arg)
{
	for (int i = 0; i < 2; i++) {
		sem_wait(&go);
		call(4711);
		sem_post(&did);
	}
	return arg;
}

static void *load(const char *path, const char *function)
{
	void *lib = dlopen(path, RTLD_NOW);
	if (!lib || !(call = (long (*)(long))dlsym(lib, function)))
		fprintf(stderr, "%s\n", dlerror());
	return lib;
}

int main(int argc, char **argv)
{
	char line[16];
	pthread_t t;
	void *lib = load(argv[1], "part_set");
	sem_init(&go, 0, 0);
	sem_init(&did, 0, 0);
	if (!lib || pthread_create(&t, 0, work, 0))
		return 1;
	sem_post(&go);
	sem_wait(&did);
	dlclose(lib);
	if (!load(argv[2], "part_early"))
		return 1;
	puts("ready");
	fflush(stdout);
	if (!fgets(line, sizeof line, stdin))
		return 1;
	sem_post(&go);
	sem_wait(&did);
	pthread_join(t, 0);
	puts("done");
	fflush(stdout);
	if (!fgets(line, sizeof line, stdin))
		return 1;
	return 7;
}
