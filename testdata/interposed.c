/* A function of libc's that the program (-DOWN), or a library of its own (-DLIBRARY), has, too. */
#ifndef LIBRARY
#include <unistd.h>

int main(void)
{
	for (int i = 0; i < 10; i++)
		if (getppid() != 4711)
			return 1;
	getpid();
	return 42;
}
#endif

#if defined LIBRARY || defined OWN
int getppid(void)
{
	return 4711;
}
#endif
