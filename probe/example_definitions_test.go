package probe_test

import (
	"context"
	"fmt"
	"log"

	"kprobe/fetch"
	"kprobe/probe"
)

// printer is a Sink: each hit is a line.
type printer struct{}

func (printer) Hit(h *probe.Hit) error {
	args, err := h.AppendArgs(nil)
	if err != nil {
		return err
	}
	fmt.Printf("%s: %s\n", h.Event.Name, args)
	return nil
}

// A command is traced by definitions, from its first instruction to its end.
func Example_definitions() {
	ctx := context.Background()
	def, err := fetch.Parse("p:said libc:write fd=$arg1:s32 bytes=$arg3:u64")
	if err != nil {
		log.Fatal(err)
	}
	echo := probe.Command{Path: "/bin/echo", Args: []string{"echo", "hello"}}
	s, err := probe.Start(ctx, echo, probe.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(ctx)
	link, err := s.Add(ctx, []*fetch.Def{def})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := s.Run(ctx, printer{}); err != nil {
		log.Fatal(err)
	}
	for _, st := range link.Stats() {
		fmt.Printf("%s: %d hits, %d lost\n", st.Event.Name, st.Hits, st.Lost)
	}
	// Output:
	// said: fd=1 bytes=6
	// said: 1 hits, 0 lost
}
