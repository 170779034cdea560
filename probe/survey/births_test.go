package survey

import (
	"fmt"
	"strings"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// Of all system calls those are found that may make a task in the same memory, with where
// their number is.
func TestBirths(t *testing.T) {
	file, err := symbols.OpenFile(fixture.Build(t, "syscalls.s", "-nostdlib", "-Wl,-e,main"))
	if err != nil {
		t.Fatal(err)
	}
	list, unknown := Births(file)
	if len(unknown) > 0 {
		t.Errorf("unknown are %v", unknown)
	}
	var got []string
	for _, b := range list {
		from := b.From.Reg.String()
		if b.From.Memory {
			from = fmt.Sprintf("%d(%s)", b.From.Off, from)
		}
		before := uint64(b.At - b.Before)
		if b.Before == 0 {
			before, from = 0, "nowhere"
		} else if b.Number != AnyNumber {
			from = "known"
		}
		if b.Behind != b.At+2 {
			t.Errorf("behind %v is %v", b.At, b.Behind)
		}
		got = append(got, fmt.Sprintf("%s %d %s %d", b.Func.Symbol.Name, b.Number, from, before))
	}
	want := []string{
		"clones 56 known 5",
		"threads 435 known 7",
		"either -1 rdx 2",
		"given -1 rax 3",
		"stored -1 8(rsi) 3",
		"entered -1 nowhere 0",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("found are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
