package results

// Block is hits of a process, in order, that were read and not worked out yet: that is
// done by who wants them, on whatever CPU. It is for one goroutine at a time.
type Block interface {
	// Len is how many hits there are.
	Len() int
	// Each gives f the hits in order, until it returns an error, which comes back. A hit
	// is valid until f returns.
	Each(f func(h *Hit) error) error
	// Over gives the block back: nobody uses it any more.
	Over()
}

// BlockSink is a Sink that takes hits many at a time, too: those that need nothing but
// their record.
type BlockSink interface {
	Sink
	// Block takes hits in their turn, called as Hit is. It says how many of the first it
	// has taken; an error is as Hit's, of the last that was taken for ErrStop, else of the
	// one behind. The block is the sink's until it calls its Over.
	Block(b Block) (taken int, err error)
}
