// A library that is loaded and unloaded. It keeps data in its text's pages' neighbours.
__attribute__((noinline, visibility("default"))) long in_library(long a) { __asm__ volatile(""); return a * 7 + 1; }
