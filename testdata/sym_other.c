// The other source file of sym_main.c: it has a static function of the same name.
int sym_shared_data[16] = {1};
static int __attribute__((noinline)) twin(int x) { return x * 77; }
int sym_other(int x) { return twin(x) + sym_shared_data[x & 15]; }
