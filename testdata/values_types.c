// Values of types that are easily printed wrong. The lines with "probe:" are
// definitions; for each hit the program prints the values itself, in JSON.
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum color { RED, GREEN, BLUE };
enum neg { MINUS = -1, ZERO, BIG = 200, MORE = 40000 };
struct bits {
	unsigned a : 3;
	bool on : 1, off : 1;
	enum color col : 2;
	signed char sc : 3;
	int i : 5;
	unsigned long ul : 40;
};
struct arrays {
	char four[4], eight[8];
	uint8_t mac[6];
	unsigned char raw[3];
	int8_t sb;
	uint8_t ub;
	signed char sc;
	char c, high;
	int cube[2][3][4];
	short flat[2][2];
	char names[2][3];
};
struct unnamed {
	int a;
	union { int x; unsigned y; };
	struct { short p; struct { short q; }; };
};

static const char *truth(int b) { return b ? "true" : "false"; }

// probe: p:bits by_bits on=b->on off=b->off col=b->col sc=b->sc i=b->i ul=b->ul
// probe: p:on by_bits on=b->on col=b->col if on == 1
// probe: p:bits2 by_bits b=*b
__attribute__((noinline)) void by_bits(struct bits *b)
{
	static const char *const colors[] = { "RED", "GREEN", "BLUE" };
	char text[200];
	snprintf(text, sizeof text, "\"on\":%s,\"off\":%s,\"col\":\"%s\",\"sc\":%d,\"i\":%d,\"ul\":%lu}", truth(b->on), truth(b->off), colors[b->col], b->sc, b->i, (unsigned long)b->ul);
	printf("=bits {%s\n=bits2 {\"b\":{\"a\":%u,%s}\n", text, b->a, text);
	if (b->on)
		printf("=on {\"on\":true,\"col\":\"%s\"}\n", colors[b->col]);
}

static void list(const char *name, const unsigned char *at, int n, int sign)
{
	printf("\"%s\":[", name);
	for (int i = 0; i < n; i++)
		printf("%s%d", i ? "," : "", sign ? (signed char)at[i] : at[i]);
	printf("]");
}

// probe: p:arrays by_arrays four=a->four eight=a->eight mac=a->mac raw=a->raw sb=a->sb ub=a->ub sc=a->sc c=a->c high=a->high cube=a->cube plane=a->cube[1] row=a->cube[1][2] one=a->cube[1][2][3] flat=a->flat name=a->names[1]
// probe: p:arrays2 by_arrays a=*a
// probe: p:negative by_arrays sb=a->sb if sb < 0
__attribute__((noinline)) void by_arrays(struct arrays *a)
{
	for (int whole = 0; whole < 2; whole++) {
		printf(whole ? "=arrays2 {\"a\":{" : "=arrays {");
		printf("\"four\":\"%.4s\",\"eight\":\"%.8s\",", a->four, a->eight);
		list("mac", a->mac, 6, 0);
		printf(",");
		list("raw", a->raw, 3, 0);
		printf(",\"sb\":%d,\"ub\":%d,\"sc\":%d,\"c\":\"%c\",\"high\":\"\\u00%02x\",\"cube\":[", a->sb, a->ub, a->sc, a->c, (unsigned char)a->high);
		for (int i = 0; i < 2; i++) {
			printf(i ? ",[" : "[");
			for (int j = 0; j < 3; j++)
				printf("%s[%d,%d,%d,%d]", j ? "," : "", a->cube[i][j][0], a->cube[i][j][1], a->cube[i][j][2], a->cube[i][j][3]);
			printf("]");
		}
		printf("],");
		if (!whole) {
			printf("\"plane\":[");
			for (int j = 0; j < 3; j++)
				printf("%s[%d,%d,%d,%d]", j ? "," : "", a->cube[1][j][0], a->cube[1][j][1], a->cube[1][j][2], a->cube[1][j][3]);
			printf("],\"row\":[%d,%d,%d,%d],\"one\":%d,", a->cube[1][2][0], a->cube[1][2][1], a->cube[1][2][2], a->cube[1][2][3], a->cube[1][2][3]);
		}
		printf("\"flat\":[[%d,%d],[%d,%d]],", a->flat[0][0], a->flat[0][1], a->flat[1][0], a->flat[1][1]);
		if (whole)
			printf("\"names\":[\"%.3s\",\"%.3s\"]}}\n", a->names[0], a->names[1]);
		else
			printf("\"name\":\"%.3s\"}\n", a->names[1]);
	}
	if (a->sb < 0)
		printf("=negative {\"sb\":%d}\n", a->sb);
}

// probe: p:unnamed by_unnamed u=*u q=u->q
__attribute__((noinline)) void by_unnamed(struct unnamed *u)
{
	printf("=unnamed {\"u\":{\"a\":%d,\"x\":%d,\"y\":%u,\"p\":%d,\"q\":%d},\"q\":%d}\n", u->a, u->x, u->y, u->p, u->q, u->q);
}

// probe: p:scalars by_scalars u8 i8 uc n m
__attribute__((noinline)) void by_scalars(uint8_t u8, int8_t i8, unsigned char uc, enum neg n, enum neg m)
{
	static const char *const names[] = { "MINUS", "ZERO" };
	printf("=scalars {\"u8\":%d,\"i8\":%d,\"uc\":%d,\"n\":\"%s\",\"m\":\"%s\"}\n", u8, i8, uc, n == BIG ? "BIG" : n == MORE ? "MORE" : names[n + 1], m == BIG ? "BIG" : m == MORE ? "MORE" : names[m + 1]);
}

// Compilers give these no place, but constants.
// probe: p:constants values_types.c:CONSTANTS k ki kn kk minus
__attribute__((noinline)) void constants(void)
{
	const uint8_t k = 200;
	const int ki = 200, minus = -200;
	const unsigned kk = 40000;
	const enum neg kn = BIG;
	printf("=constants {\"k\":%d,\"ki\":%d,\"kn\":\"BIG\",\"kk\":%u,\"minus\":%d}\n", k, ki, kk, minus); // CONSTANTS
	(void)kn;
}

int main(void)
{
	struct bits b = { 5, true, false, BLUE, -2, -7, 135056262347 };
	by_bits(&b);
	b = (struct bits){ 2, false, true, GREEN, 3, 15, 1 };
	by_bits(&b);
	static struct arrays a = { "abcd", "ab", { 0, 0x1b, 2, 0, 5, 6 }, { 0xff, 0, 1 }, -5, 200, -100, 'x', (char)0xe9, { { { 0 } } }, { { 1, 2 }, { 3, 4 } }, { "xyz", "q" } };
	for (int i = 0; i < 24; i++)
		((int *)a.cube)[i] = i;
	by_arrays(&a);
	a.sb = 5;
	by_arrays(&a);
	struct unnamed u = { 1, { 2 }, { 3, { 4 } } };
	by_unnamed(&u);
	by_scalars(200, -56, 250, BIG, MINUS);
	by_scalars(0, 127, 'a', ZERO, MORE);
	constants();
	return 0;
}
