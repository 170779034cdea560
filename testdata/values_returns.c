// What a return probe prints: the numbers of the call are the entry's, what an
// address leads to is the return's, and with @entry the entry's.
#include <stdio.h>
#include <string.h>

struct msg { int code; short part; char text[12]; const char *note; };
struct pair { int a; const char *s; };
struct large { long a, b, c; char t[8]; };
struct huge { long a; int more[60]; };

int counter;
__thread int state;
static struct msg before;

// probe: r:fill fill code=r->code part=r->part text=r->text note=r->note r=*r counter state out=*out n m=+4($arg1):s16 c=+0($arg1):s32 at=@counter:s32 t=+6($arg1):string raw=+6($arg1):u8[4] ret=$retval arg=$arg3:s32
// probe: r:then fill code=r->code@entry part=r->part@entry text=r->text@entry r=*r@entry counter=counter@entry state=state@entry out=*out@entry n=n@entry c=+0($arg1)@entry:s32 at=@counter@entry:s32 raw=+6($arg1)@entry:u8[4]
// probe: r:late fill code=r->code if code == 7
// probe: r:early fill code=r->code@entry if code == 1
__attribute__((noinline)) int fill(struct msg *r, int *out, int n)
{
	before = *r;
	int was_counter = counter, was_state = state, was_out = *out, was_n = n;
	printf("=then {\"code\":%d,\"part\":%d,\"text\":\"%s\",\"r\":{\"code\":%d,\"part\":%d,\"text\":\"%s\"},\"counter\":%d,\"state\":%d,\"out\":%d,\"n\":%d,\"c\":%d,\"at\":%d,\"raw\":[%d,%d,%d,%d]}\n",
	       r->code, r->part, r->text, r->code, r->part, r->text, was_counter, was_state, was_out, n, r->code, was_counter, r->text[0], r->text[1], r->text[2], r->text[3]);
	if (r->code == 1)
		printf("=early {\"code\":1}\n");
	r->code += 6;
	r->part = -3;
	strcpy(r->text, "done");
	r->note = "noted";
	counter++;
	state = 30 + counter;
	*out = 9;
	n = 1000;
	__asm__ volatile("" : "+r"(n) : : "memory");
	printf("=fill {\"code\":%d,\"part\":%d,\"text\":\"%s\",\"note\":\"%s\",\"r\":{\"code\":%d,\"part\":%d,\"text\":\"%s\",\"note\":\"%s\"},\"counter\":%d,\"state\":%d,\"out\":%d,\"n\":%d,\"m\":%d,\"c\":%d,\"at\":%d,\"t\":\"%s\",\"raw\":[%d,%d,%d,%d],\"ret\":%d,\"arg\":%d}\n",
	       r->code, r->part, r->text, r->note, r->code, r->part, r->text, r->note, counter, state, *out, was_n, r->part, r->code, counter, r->text, r->text[0], r->text[1], r->text[2], r->text[3], counter, was_n);
	if (r->code == 7)
		printf("=late {\"code\":7}\n");
	return counter;
}

// probe: r:by_value by_value p pa=p.a ps=p.s l la=l.a lt=l.t name n ha=h.a
// probe: r:listed by_value $params
__attribute__((noinline)) int by_value(struct pair p, struct large l, struct huge h, char *name, int n)
{
	printf("=by_value {\"p\":{\"a\":%d,\"s\":\"%s\"},\"pa\":%d,\"ps\":\"%s\",\"l\":{\"a\":%ld,\"b\":%ld,\"c\":%ld,\"t\":\"%s\"},\"la\":%ld,\"lt\":\"%s\",\"n\":%d,\"ha\":%ld,\"name\":\"after\"}\n", p.a, p.s, p.a, p.s, l.a, l.b, l.c, l.t, l.a, l.t, n, h.a);
	printf("=listed {\"l\":{\"a\":%ld,\"b\":%ld,\"c\":%ld,\"t\":\"%s\"},\"h\":null,\"n\":%d,\"name\":\"after\"}\n", l.a, l.b, l.c, l.t, n);
	p.a = 1000;
	l.a = 1001;
	h.a = 1002;
	n = 1003;
	strcpy(l.t, "other");
	strcpy(name, "after");
	__asm__ volatile("" : : "r"(&p), "r"(&l), "r"(&h), "r"(&n) : "memory");
	return (int)(p.a + l.a + h.a + n);
}

int main(void)
{
	struct msg m = { 1, 2, "start", "first" };
	int out = 5;
	fill(&m, &out, 3);
	fill(&m, &out, 4);
	char name[16] = "before";
	by_value((struct pair){ 4, "four" }, (struct large){ 1, -2, 3, "text" }, (struct huge){ 6 }, name, 7);
	return 0;
}
