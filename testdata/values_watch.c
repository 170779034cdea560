// Variables outside of functions, for watchpoints.
struct state { int a, b; } state;
volatile int watched;

int main(void)
{
	for (int i = 0; i < 3; i++) {
		watched += i;
		state.b++;
	}
	return state.b == 0;
}
