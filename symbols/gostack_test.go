package symbols

import (
	"os"
	"reflect"
	"runtime"
	"testing"

	"github.com/go-delve/delve/pkg/dwarf/regnum"

	"kprobe/symbols/unwind"
)

// stackWords are what a stack holds, by address.
type stackWords map[uint64]uint64

func (w stackWords) Word(at uint64) (uint64, bool) { v, ok := w[at]; return v, ok }

// TestGoStackEnds: a goroutine's stack ends at runtime.goexit, whatever was left above
// it on a stack that was used before.
func TestGoStackEnds(t *testing.T) {
	ends := make(chan uintptr)
	go func() {
		pcs := make([]uintptr, 16)
		ends <- pcs[runtime.Callers(0, pcs)-1]
	}()
	goexit := uint64(<-ends)
	if name := runtime.FuncForPC(uintptr(goexit)).Name(); name != "runtime.goexit" {
		t.Fatalf("a goroutine's first function returns to %s", name)
	}
	own := uint64(reflect.ValueOf(TestGoStackEnds).Pointer())
	s, err := OpenProcess(os.Getpid(), nil)
	if err != nil {
		t.Fatal(err)
	}
	const sp = 0xc000001000
	var r unwind.Regs
	r.Set(unwind.PC, own)
	r.Set(unwind.SP, sp)
	r.Set(regnum.AMD64_Rbp, 0)
	frames, end := NewWalker(s).Walk(nil, r, stackWords{sp: goexit, sp + 8: own + 1, sp + 16: own + 1, sp + 24: own + 1}, 16)
	if len(frames) != 2 || end != StackWhole || uint64(frames[1].Addr) != goexit {
		t.Errorf("the stack is %v and ends as %q, want it whole and to end at %#x", frames, end, goexit)
	}
}
