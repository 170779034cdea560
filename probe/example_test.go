package probe_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe"
)

// account is a program with the function
//
//	struct account { int id; long cents; };
//	int withdraw(struct account *a, long cents);
//
// which it calls with 300, 900 and 200 for an account of 1000 cents. The result
// is 0, or -1 if the account has too little. It prints what came of each call
// when it ends.
func account() probe.Command {
	path := fixture.Build(builder{}, "probe_account.c", "-O1", "-g")
	return probe.Command{Path: path, Args: []string{path}, Stdout: os.Stdout}
}

// A handler sees the arguments of a call before its first instruction is
// executed, and may change them.
func ExampleKprobe() {
	ctx := context.Background()
	s, err := probe.Start(ctx, account(), probe.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close(ctx)

	limit := &probe.Kprobe{
		Symbol: "withdraw",
		PreHandler: func(p *probe.Kprobe, regs *probe.Regs) bool {
			if cents := regs.Arg(2); cents > 500 {
				fmt.Printf("%s: 500 instead of %d\n", p, cents)
				regs.SetArg(2, 500)
			}
			return false // execute the instruction
		},
	}
	if err := s.Register(ctx, limit); err != nil {
		fmt.Println(err)
		return
	}
	if _, err := s.Run(ctx, nil); err != nil {
		fmt.Println(err)
	}
	fmt.Println("hits:", limit.Stats().Hits)
	// Output:
	// withdraw: 500 instead of 900
	// 300: paid
	// 900: paid
	// 200: paid
	// left: 0
	// hits: 3
}

// A pre handler that returns true has the thread go on where it says: here, with
// a function that isn't executed at all.
func ExampleRegs_SkipFunction() {
	ctx := context.Background()
	s, err := probe.Start(ctx, account(), probe.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close(ctx)

	err = s.Register(ctx, &probe.Kprobe{
		Symbol: "withdraw",
		PreHandler: func(_ *probe.Kprobe, regs *probe.Regs) bool {
			if err := regs.SkipFunction(0); err != nil {
				fmt.Println(err)
				return false
			}
			return true
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := s.Run(ctx, nil); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 300: paid
	// 900: paid
	// 200: paid
	// left: 1000
}

// A call is followed from its entry to its return. Here its argument is kept
// until then, and a failure is injected by another result.
func ExampleKretprobe() {
	ctx := context.Background()
	s, err := probe.Start(ctx, account(), probe.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close(ctx)

	err = s.Register(ctx, &probe.Kretprobe{
		Kprobe: probe.Kprobe{Symbol: "withdraw"},
		EntryHandler: func(ri *probe.KretprobeInstance, regs *probe.Regs) bool {
			ri.Value = regs.Arg(2)
			return false // follow the call
		},
		Handler: func(ri *probe.KretprobeInstance, regs *probe.Regs) {
			fmt.Printf("withdraw(%d) = %d\n", ri.Value, int32(regs.RetVal()))
			if ri.Value == uint64(200) {
				failed := int32(-1)
				regs.SetRetVal(uint64(uint32(failed)))
			}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := s.Run(ctx, nil); err != nil {
		fmt.Println(err)
	}
	// Output:
	// withdraw(300) = 0
	// withdraw(900) = -1
	// withdraw(200) = 0
	// 300: paid
	// 900: refused
	// 200: refused
	// left: 500
}

// A function of Go is called with the arguments of a function of C, and what
// they point to.
func ExampleJprobe() {
	ctx := context.Background()
	quiet := account()
	quiet.Stdout = nil
	s, err := probe.Start(ctx, quiet, probe.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close(ctx)

	type account struct { // as C lays out struct account
		ID    int32
		Cents int64
	}
	err = s.Register(ctx, &probe.Jprobe{
		Kprobe: probe.Kprobe{Symbol: "withdraw"},
		Entry: func(a *account, cents int64) {
			fmt.Printf("%d of %d cents from account %d\n", cents, a.Cents, a.ID)
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := s.Run(ctx, nil); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 300 of 1000 cents from account 7
	// 900 of 700 cents from account 7
	// 200 of 700 cents from account 7
}

// builder is what fixture.Build needs of a test: examples have none.
type builder struct{ testing.TB }

func (builder) Helper()                   {}
func (builder) Fatal(args ...any)         { panic(fmt.Sprint(args...)) }
func (builder) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }
func (builder) Skipf(f string, a ...any)  { panic(fmt.Sprintf(f, a...)) }
