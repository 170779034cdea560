// Variables that a program and a library have in common.
struct Level { long level; };
struct Shared {
	static inline int counter = 10;
	static inline const int fixed = 7;
	static Level &inner() { static Level one = {3}; return one; }
	int own = 1;
	int of(int x);
};
extern int copied, numbers[4];
int use(int x);
