// Thread-local variables that the program and a library each have.

struct Each {
	static inline thread_local int counter = 5;
};

inline thread_local long shared = 7;
