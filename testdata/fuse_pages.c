// A program that serves a file system itself, on a thread, and has a file of it mapped:
// each page that touch reads is filled by fill, when it is read for the first time.
#define FUSE_USE_VERSION 31
#include <errno.h>
#include <fuse.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <fcntl.h>
#include <unistd.h>

#define PAGE 4096
#define PAGES 4

static struct fuse *server;

__attribute__((noinline)) int fill(unsigned long *page, long n)
{
	for (int i = 0; i < PAGE / 8; i++)
		page[i] = 10 + n;
	return PAGE;
}

__attribute__((noinline)) unsigned long touch(volatile unsigned long *page)
{
	return *page;
}

static void *init(struct fuse_conn_info *conn, struct fuse_config *cfg)
{
	conn->max_readahead = 0;
	return NULL;
}

static int getattr(const char *path, struct stat *st, struct fuse_file_info *fi)
{
	memset(st, 0, sizeof *st);
	st->st_nlink = 1;
	if (!strcmp(path, "/")) {
		st->st_mode = S_IFDIR | 0755;
		return 0;
	}
	if (strcmp(path, "/pages"))
		return -ENOENT;
	st->st_mode = S_IFREG | 0644;
	st->st_size = PAGE * PAGES;
	return 0;
}

static int fill_one(const char *path, char *buf, size_t size, off_t off, struct fuse_file_info *fi)
{
	size_t done = 0;

	for (; done + PAGE <= size && off + done < PAGE * PAGES; done += PAGE)
		fill((unsigned long *)(buf + done), (off + done) / PAGE);
	return done;
}

static const struct fuse_operations ops = { .init = init, .getattr = getattr, .read = fill_one };

static void *serve(void *arg)
{
	return (void *)(long)fuse_loop(server);
}

int main(int argc, char **argv)
{
	char dir[] = "/tmp/fuse_pagesXXXXXX", path[64];
	char *args[] = { argv[0], "-oauto_unmount", NULL };
	struct fuse_args list = FUSE_ARGS_INIT(1, args);
	unsigned long sum = 0;
	pthread_t t;
	int fd;
	char *p;

	if (!mkdtemp(dir) || !(server = fuse_new(&list, &ops, sizeof ops, NULL)) || fuse_mount(server, dir) != 0) {
		rmdir(dir);
		printf("no fuse\n");
		return 0;
	}
	pthread_create(&t, NULL, serve, NULL);
	snprintf(path, sizeof path, "%s/pages", dir);
	fd = open(path, O_RDONLY);
	p = mmap(NULL, PAGE * PAGES, PROT_READ, MAP_PRIVATE, fd, 0);
	if (fd < 0 || p == MAP_FAILED) {
		printf("no mapping: %s\n", strerror(errno));
		return 1;
	}
	madvise(p, PAGE * PAGES, MADV_RANDOM);
	printf("ready\n");
	fflush(stdout);
	getchar();
	for (int i = 0; i < PAGES; i++)
		sum += touch((unsigned long *)(p + i * PAGE));
	printf("done %lu\n", sum);
	fflush(stdout);
	getchar();
	munmap(p, PAGE * PAGES);
	close(fd);
	fuse_exit(server);
	fuse_unmount(server);
	pthread_join(t, NULL);
	rmdir(dir);
	return 7;
}
