package probe

import (
	"os"
	"path/filepath"
	"testing"

	"kprobe/internal/fixture"
)

const structorsProgram = `
struct V { virtual ~V() {} int v = 1; };
struct Base : virtual V {
	int b;
	__attribute__((noinline)) Base(int n) : b(n) { asm volatile("" ::: "memory"); }
	__attribute__((noinline)) virtual ~Base() { asm volatile("" ::: "memory"); }
};
struct Derived : Base {
	__attribute__((noinline)) Derived(int n) : Base(n + 1) { asm volatile("" ::: "memory"); }
};
V *volatile kept;
int main()
{
	for (int i = 0; i < 5; i++) {
		Derived d(i);
		Base b(7);
		kept = new Base(8);
		delete kept;
	}
}
`

// Each object counts once, whichever of its constructor's and destructor's
// functions make and unmake it.
func TestStructorsAreOneEvent(t *testing.T) {
	src := filepath.Join(t.TempDir(), "structors.cc")
	if err := os.WriteFile(src, []byte(structorsProgram), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, level := range []string{"-O0", "-O1", "-O2"} {
		prog := fixture.BuildFile(t, src, "-g", level)
		sum := traceCommand(t, Options{}, &collector{}, []string{prog}, "p:made Base::Base n", "r:back Base::Base", "p:gone Base::~Base")
		for _, st := range sum.Stats {
			if st.Hits != 15 || st.Missed != 0 {
				t.Errorf("%s: %s has %d hits, %d missed, want 15 at %d places", level, st.Event.Name, st.Hits, st.Missed, st.Places)
			}
		}
	}
}
