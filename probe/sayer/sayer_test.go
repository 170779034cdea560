package sayer

import (
	"slices"
	"sync"
	"testing"
)

// Lines are said one after the other, in the order in which each goroutine had them said,
// and none is lost.
func TestSayer(t *testing.T) {
	const speakers, lines = 4, 200
	var s Sayer
	var said [speakers][]int // by the sayer's goroutine alone
	var wg, heard sync.WaitGroup
	heard.Add(speakers * lines) // no more than may wait
	for n := range speakers {
		wg.Go(func() {
			for i := range lines {
				s.Say(func() { said[n] = append(said[n], i); heard.Done() })
			}
		})
	}
	wg.Wait()
	heard.Wait()
	s.Flush()
	for n := range said {
		if len(said[n]) != lines || !slices.IsSorted(said[n]) {
			t.Errorf("speaker %d is heard out of order: %v", n, said[n])
		}
	}
	if n := s.TakeDropped(); n != 0 {
		t.Errorf("%d lines were dropped", n)
	}
}

// Who has something said waits for nobody: lines beyond what may wait are dropped and
// counted, and Flush gives up on a terminal that takes nothing.
func TestSayerBlocked(t *testing.T) {
	var s Sayer
	begun, let := make(chan struct{}), make(chan struct{})
	var heard sync.WaitGroup
	heard.Add(Most)
	s.Say(func() { close(begun); <-let })
	<-begun
	for range Most + 7 {
		s.Say(heard.Done)
	}
	s.Flush() // comes back though nothing is said
	if n := s.TakeDropped(); n != 7 {
		t.Errorf("%d lines were dropped, want 7", n)
	}
	if n := s.TakeDropped(); n != 0 {
		t.Errorf("%d lines were dropped twice", n)
	}
	close(let)
	heard.Wait()
}
