package symbols

import (
	"strings"
	"testing"
)

// TestUSDTArguments takes operands of every form apart.
func TestUSDTArguments(t *testing.T) {
	for text, want := range map[string]USDTArg{
		"-4@%edi":                 {Size: 4, Signed: true, Kind: USDTReg, Reg: "edi"},
		"1@%ah":                   {Size: 1, Kind: USDTReg, Reg: "ah"},
		"8f@%xmm15":               {Size: 8, Float: true, Kind: USDTReg, Reg: "xmm15"},
		"%rdi":                    {Size: 8, Kind: USDTReg, Reg: "rdi"},
		"-4@$-7":                  {Size: 4, Signed: true, Disp: -7},
		"8@$0x10":                 {Size: 8, Disp: 16},
		"8@$18446744073709551615": {Size: 8, Disp: -1},
		"8@$name+4":               {Size: 8, Symbol: "name", Disp: 4},
		"$5":                      {Size: 8, Disp: 5},
		"8@(%rsp)":                {Size: 8, Kind: USDTMemory, Base: "rsp", Scale: 1},
		"-4@-24(%rbp)":            {Size: 4, Signed: true, Kind: USDTMemory, Base: "rbp", Scale: 1, Disp: -24},
		"2@8+16(%rsp)":            {Size: 2, Kind: USDTMemory, Base: "rsp", Scale: 1, Disp: 24},
		"8@4(%rax,%rbx,8)":        {Size: 8, Kind: USDTMemory, Base: "rax", Index: "rbx", Scale: 8, Disp: 4},
		"8@-8(%rax, %rbx)":        {Size: 8, Kind: USDTMemory, Base: "rax", Index: "rbx", Scale: 1, Disp: -8},
		"8@(,%rbx,4)":             {Size: 8, Kind: USDTMemory, Index: "rbx", Scale: 4},
		"-4@NBuffers(%rip)":       {Size: 4, Signed: true, Kind: USDTMemory, Base: "rip", Scale: 1, Symbol: "NBuffers"},
		"-4@40+Stats(%rip)":       {Size: 4, Signed: true, Kind: USDTMemory, Base: "rip", Scale: 1, Symbol: "Stats", Disp: 40},
		"-4@v.1-8(%rip)":          {Size: 4, Signed: true, Kind: USDTMemory, Base: "rip", Scale: 1, Symbol: "v.1", Disp: -8},
		"4@-8+v(%rip)":            {Size: 4, Kind: USDTMemory, Base: "rip", Scale: 1, Symbol: "v", Disp: -8},
		"8@errno@GOTPCREL(%rip)":  {Size: 8, Kind: USDTMemory, Base: "rip", Scale: 1, Symbol: "errno", Got: true},
		"4f@rate(%rip)":           {Size: 4, Float: true, Kind: USDTMemory, Base: "rip", Scale: 1, Symbol: "rate"},
		"4@table(,%rax,4)":        {Size: 4, Kind: USDTMemory, Index: "rax", Scale: 4, Symbol: "table"},
		"8@%fs:0x28":              {Size: 8, Kind: USDTMemory, Segment: "fs", Disp: 40},
		"8@%fs:8(%rax)":           {Size: 8, Kind: USDTMemory, Segment: "fs", Base: "rax", Scale: 1, Disp: 8},
	} {
		want.Text = text
		u := USDT{Args: "-4@$1 " + text + "\t8@%r9"}
		args, errs := u.Arguments()
		if len(args) != 3 || errs[1] != nil || args[1] != want || args[0].Disp != 1 || args[2].Reg != "r9" {
			t.Errorf("%s: %+v, %v, want %+v", text, args, errs, want)
		}
	}
	for _, text := range []string{
		"16@%xmm0", "3@%eax", "0@%eax", "2f@%xmm0", "-@%eax", "4@", "4@$", "4@(%rax", "4@(rax)", "4@()", "4@8(%rax,%rbx,3)", "4@(%rax,%rbx,1,2)",
		"4@8(%rip)", "8@x@tpoff(%rax)", "8@%fs:x@tpoff", "4@a+b(%rip)", "4@-a(%rip)", "4@99999999999999999999", "4@a!(%rip)", "8@%ds:4", "4@+(%rax)",
	} {
		u := USDT{Args: "-4@$1 " + text + " 8@%r9"}
		args, errs := u.Arguments()
		if len(args) != 3 || errs[1] == nil || errs[0] != nil || errs[2] != nil {
			t.Errorf("%s: %+v, %v", text, args, errs)
		}
	}
	u := USDT{Args: "-4@DWORD PTR [rbp-4] 8@rax"}
	if _, errs := u.Arguments(); len(errs) == 0 || errs[0] == nil || !strings.Contains(errs[0].Error(), "Intel") {
		t.Errorf("Intel's syntax: %v", errs)
	}
}

// FuzzUSDTArguments: the text of a note is anything, and is taken apart to no more
// than it has.
func FuzzUSDTArguments(f *testing.F) {
	for _, seed := range []string{"", "-4@%edi 8f@%xmm0", "4@8+a.b(%rip) $-5", "8@-8(%rax, %rbx, 4)", "8@%fs:0", "8@x@GOTPCREL(%rip)", "((( @ ,, %%"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u := USDT{Args: text}
		args, errs := u.Arguments()
		if len(args) != len(errs) || len(args) > maxUSDTArgs {
			t.Fatalf("%d arguments, %d errors", len(args), len(errs))
		}
		for i, a := range args {
			if errs[i] == nil && (a.Size != 1 && a.Size != 2 && a.Size != 4 && a.Size != 8 || !strings.Contains(text, a.Text)) {
				t.Errorf("%q: %+v", text, a)
			}
		}
	})
}
