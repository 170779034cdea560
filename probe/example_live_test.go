package probe_test

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os/exec"

	"kprobe/fetch"
	"kprobe/probe"
)

// firstTwo is a Sink that has seen enough after two hits.
type firstTwo struct{ seen int }

func (f *firstTwo) Hit(h *probe.Hit) error {
	args, err := h.AppendArgs(nil)
	if err != nil {
		return err
	}
	fmt.Printf("%s\n", args)
	if f.seen++; f.seen == 2 {
		return probe.ErrStop
	}
	return nil
}

// A process that runs is attached to, and runs on without probes afterwards.
func Example_live() {
	shell := exec.Command("/bin/sh", "-c", `echo ready; while read word; do echo "$word"; done`)
	in, err := shell.StdinPipe()
	if err != nil {
		log.Fatal(err)
	}
	out, err := shell.StdoutPipe()
	if err != nil {
		log.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		log.Fatal(err)
	}
	// A process that has just been started may have no C library yet.
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	s, err := probe.Attach(ctx, []int{shell.Process.Pid}, probe.Options{})
	if err != nil {
		log.Fatal(err) // a *probe.TracedError if a debugger has it, for instance
	}
	def, err := fetch.Parse("p:said libc:write bytes=$arg3:u64")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := s.Add(ctx, []*fetch.Def{def}); err != nil {
		log.Fatal(err)
	}
	go fmt.Fprint(in, "hello\nworld!\n")
	sum, err := s.Run(ctx, &firstTwo{})
	if err != nil {
		log.Fatal(err)
	}
	if err := s.Close(ctx); err != nil { // the shell's text is as it was
		log.Fatal(err)
	}
	fmt.Println("enough:", sum.Reason == probe.EndSink)
	in.Close()
	fmt.Println("the shell ends:", shell.Wait())
	// Output:
	// bytes=6
	// bytes=7
	// enough: true
	// the shell ends: <nil>
}
