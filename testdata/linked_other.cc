// A file of linked_program.cc with variables of its own that are named as others'.
static int copied = -1;
static int numbers[4] = {-1, -1, -1, -1};
__attribute__((noinline)) int elsewhere(int x) {
	copied -= x;
	numbers[2] -= x;
	return copied;
}
