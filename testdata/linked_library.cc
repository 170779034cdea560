// A library of linked_program.cc.
#include "linked.h"
int copied = 100, own = 50;
int numbers[4] = {1, 2, 3, 4};
thread_local int each = 5;
static int hidden = 9;
int use(int x) {
	Shared::counter += x;
	Shared::inner().level += x;
	copied += x;
	own += x;
	hidden += x;
	numbers[2] += x;
	each += x;
	return copied + own;
}
