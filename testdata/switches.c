/* Switches that compilers make jump tables of: dense, with holes, from an offset,
   of a byte, of 64 bits, without a default, nested, in a loop with calls,
   where the address of the table is kept in a register. */
volatile long sink;

__attribute__((noinline)) long dense(int x)
{
	switch (x) {
	case 0: sink = 0; break;
	case 1: sink = 919; return sink + 4;
	case 2: sink = 838; return sink + 7;
	case 3: sink = 757; break;
	case 4: sink = 676; return sink + 13;
	case 5: sink = 595; return sink + 16;
	case 6: sink = 514; break;
	case 7: sink = 433; return sink + 22;
	case 8: sink = 352; return sink + 25;
	case 9: sink = 271; break;
	case 10: sink = 190; return sink + 31;
	case 11: sink = 109; return sink + 34;
	default: sink = 1; return -1;
	}
	return sink * 3;
}

__attribute__((noinline)) long holes(int x)
{
	switch (x) {
	case 1: sink = 0; break;
	case 2: sink = 919; return sink + 4;
	case 3: sink = 838; return sink + 7;
	case 5: sink = 757; break;
	case 6: sink = 676; return sink + 13;
	case 9: sink = 595; return sink + 16;
	case 10: sink = 514; break;
	case 11: sink = 433; return sink + 22;
	case 14: sink = 352; return sink + 25;
	case 15: sink = 271; break;
	default: sink = 1; return -1;
	}
	return sink * 3;
}

__attribute__((noinline)) long offset(int x)
{
	switch (x) {
	case 1000: sink = 0; break;
	case 1001: sink = 919; return sink + 4;
	case 1002: sink = 838; return sink + 7;
	case 1003: sink = 757; break;
	case 1004: sink = 676; return sink + 13;
	case 1005: sink = 595; return sink + 16;
	case 1006: sink = 514; break;
	case 1007: sink = 433; return sink + 22;
	case 1008: sink = 352; return sink + 25;
	case 1009: sink = 271; break;
	case 1010: sink = 190; return sink + 31;
	case 1011: sink = 109; return sink + 34;
	case 1012: sink = 28; break;
	case 1013: sink = 947; return sink + 40;
	case 1014: sink = 866; return sink + 43;
	case 1015: sink = 785; break;
	case 1016: sink = 704; return sink + 49;
	case 1017: sink = 623; return sink + 52;
	case 1018: sink = 542; break;
	case 1019: sink = 461; return sink + 58;
	default: sink = 1; return -1;
	}
	return sink * 3;
}

__attribute__((noinline)) long byte(unsigned char x)
{
	switch (x) {
	case 32: sink = 0; break;
	case 33: sink = 919; return sink + 4;
	case 34: sink = 838; return sink + 7;
	case 35: sink = 757; break;
	case 36: sink = 676; return sink + 13;
	case 37: sink = 595; return sink + 16;
	case 38: sink = 514; break;
	case 39: sink = 433; return sink + 22;
	case 40: sink = 352; return sink + 25;
	case 41: sink = 271; break;
	case 42: sink = 190; return sink + 31;
	case 43: sink = 109; return sink + 34;
	case 44: sink = 28; break;
	case 45: sink = 947; return sink + 40;
	case 46: sink = 866; return sink + 43;
	case 47: sink = 785; break;
	case 48: sink = 704; return sink + 49;
	case 49: sink = 623; return sink + 52;
	case 50: sink = 542; break;
	case 51: sink = 461; return sink + 58;
	case 52: sink = 380; return sink + 61;
	case 53: sink = 299; break;
	case 54: sink = 218; return sink + 67;
	case 55: sink = 137; return sink + 70;
	case 56: sink = 56; break;
	case 57: sink = 975; return sink + 76;
	case 58: sink = 894; return sink + 79;
	case 59: sink = 813; break;
	case 60: sink = 732; return sink + 85;
	case 61: sink = 651; return sink + 88;
	case 62: sink = 570; break;
	case 63: sink = 489; return sink + 94;
	default: sink = 1; return -1;
	}
	return sink * 3;
}

__attribute__((noinline)) long wide(unsigned long x)
{
	switch (x) {
	case 5: sink = 0; break;
	case 6: sink = 919; return sink + 4;
	case 7: sink = 838; return sink + 7;
	case 8: sink = 757; break;
	case 9: sink = 676; return sink + 13;
	case 10: sink = 595; return sink + 16;
	case 11: sink = 514; break;
	case 12: sink = 433; return sink + 22;
	case 13: sink = 352; return sink + 25;
	case 14: sink = 271; break;
	case 15: sink = 190; return sink + 31;
	case 16: sink = 109; return sink + 34;
	case 17: sink = 28; break;
	case 18: sink = 947; return sink + 40;
	case 19: sink = 866; return sink + 43;
	case 20: sink = 785; break;
	case 21: sink = 704; return sink + 49;
	case 22: sink = 623; return sink + 52;
	case 23: sink = 542; break;
	case 24: sink = 461; return sink + 58;
	default: sink = 1; return -1;
	}
	return sink * 3;
}

__attribute__((noinline)) long masked(unsigned x)
{
	switch (x & 15) {
	case 0: sink = 0; break;
	case 1: sink = 919; return sink + 4;
	case 2: sink = 838; return sink + 7;
	case 3: sink = 757; break;
	case 4: sink = 676; return sink + 13;
	case 5: sink = 595; return sink + 16;
	case 6: sink = 514; break;
	case 7: sink = 433; return sink + 22;
	case 8: sink = 352; return sink + 25;
	case 9: sink = 271; break;
	case 10: sink = 190; return sink + 31;
	case 11: sink = 109; return sink + 34;
	case 12: sink = 28; break;
	case 13: sink = 947; return sink + 40;
	case 14: sink = 866; return sink + 43;
	case 15: sink = 785; break;
	}
	return sink * 3;
}

__attribute__((noinline)) long nested(int x, int y)
{
	switch (x) {
	case 0:
		switch (y) {
		case 0: sink = 0; return sink + 0;
		case 1: sink = 1; return sink + 0;
		case 2: sink = 2; return sink + 0;
		case 3: sink = 3; return sink + 0;
		case 4: sink = 4; return sink + 0;
		case 5: sink = 5; return sink + 0;
		case 6: sink = 6; return sink + 0;
		}
		break;
	case 1:
		switch (y) {
		case 0: sink = 10; return sink + 0;
		case 1: sink = 11; return sink + 1;
		case 2: sink = 12; return sink + 2;
		case 3: sink = 13; return sink + 3;
		case 4: sink = 14; return sink + 4;
		case 5: sink = 15; return sink + 5;
		case 6: sink = 16; return sink + 6;
		}
		break;
	case 2:
		switch (y) {
		case 0: sink = 20; return sink + 0;
		case 1: sink = 21; return sink + 2;
		case 2: sink = 22; return sink + 4;
		case 3: sink = 23; return sink + 6;
		case 4: sink = 24; return sink + 8;
		case 5: sink = 25; return sink + 10;
		case 6: sink = 26; return sink + 12;
		}
		break;
	case 3:
		switch (y) {
		case 0: sink = 30; return sink + 0;
		case 1: sink = 31; return sink + 3;
		case 2: sink = 32; return sink + 6;
		case 3: sink = 33; return sink + 9;
		case 4: sink = 34; return sink + 12;
		case 5: sink = 35; return sink + 15;
		case 6: sink = 36; return sink + 18;
		}
		break;
	case 4:
		switch (y) {
		case 0: sink = 40; return sink + 0;
		case 1: sink = 41; return sink + 4;
		case 2: sink = 42; return sink + 8;
		case 3: sink = 43; return sink + 12;
		case 4: sink = 44; return sink + 16;
		case 5: sink = 45; return sink + 20;
		case 6: sink = 46; return sink + 24;
		}
		break;
	case 5:
		switch (y) {
		case 0: sink = 50; return sink + 0;
		case 1: sink = 51; return sink + 5;
		case 2: sink = 52; return sink + 10;
		case 3: sink = 53; return sink + 15;
		case 4: sink = 54; return sink + 20;
		case 5: sink = 55; return sink + 25;
		case 6: sink = 56; return sink + 30;
		}
		break;
	}
	return sink;
}

__attribute__((noinline)) long called(int x)
{
	sink = x;
	return sink;
}

__attribute__((noinline)) long looped(int x)
{
	long n = 0;
	for (; x > 0; x -= called(x) & 3) {
		switch (called(x) & 15) {
		case 0: n += sink; break;
		case 1: n += 7; break;
		case 2: n = called(n); break;
		case 3: n -= sink; break;
		case 4: n *= 5; break;
		case 5: n ^= called(3); break;
		case 6: n += 11; break;
		}
		called(n);
		switch (called(x + 1) & 15) {
		case 0: n -= 3; break;
		case 1: n += sink; break;
		case 2: n = called(n + 1); break;
		case 3: n ^= sink; break;
		case 4: n *= 3; break;
		case 5: n += called(5); break;
		}
	}
	return n;
}

int main(int argc, char **argv)
{
	(void)argv;
	return dense(argc) + holes(argc) + offset(argc) + byte(argc) + wide(argc) + masked(argc) + nested(argc, argc) == 0;
}
