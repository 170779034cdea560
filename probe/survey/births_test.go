package survey

import (
	"fmt"
	"strings"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// Of all system calls those are found that may make a task in the same memory, set seccomp rules or
// end mappings, with where their number is.
func TestBirths(t *testing.T) {
	file, err := symbols.OpenFile(fixture.Build(t, "syscalls.s", "-nostdlib", "-Wl,-e,main"))
	if err != nil {
		t.Fatal(err)
	}
	list, unknown, blind := Births(file)
	if unknown = append(unknown, blind...); len(unknown) > 0 {
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
		what := ""
		if b.Task {
			what += " task"
		}
		if b.Rules {
			what += " rules"
		}
		if b.Unmaps {
			what += " unmaps"
		}
		if b.Blurs {
			what += " blurred"
		}
		got = append(got, fmt.Sprintf("%s %d %s %d%s", b.Func.Symbol.Name, b.Number, from, before, what))
	}
	want := []string{
		"clones 56 known 5 task",
		"threads 435 known 7 task",
		"either -1 rdx 2 task",
		"given -1 rax 3 task rules unmaps blurred",
		"stored -1 8(rsi) 3 task rules unmaps",
		"entered -1 nowhere 0 task rules unmaps",
		"controls 157 known 5 rules",
		"filters 317 known 5 rules",
		"unmaps 11 known 5 unmaps",
		"maps 9 known 3 unmaps blurred",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("found are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
