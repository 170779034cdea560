package results

// Block is a number of hits of a process, in order, that were read and not decoded yet. The
// receiver decodes them, on whatever CPU. It is for one goroutine at a time.
type Block interface {
	// Len is how many hits there are.
	Len() int
	// Each calls f with the hits in order, until it returns an error, which Each returns. A
	// hit is valid until f returns.
	Each(f func(h *Hit) error) error
	// Over returns the block: it must not be used any more.
	Over()
}

// BlockSink is a Sink that also takes hits in blocks: those that need nothing but their record.
type BlockSink interface {
	Sink
	// Block takes hits in their turn, and is called as Hit is. It returns how many it has
	// taken from the start. An error has the meaning of Hit's. It is that of the last hit
	// taken if it is ErrStop, and otherwise of the one after. The block belongs to the sink
	// until it calls Over.
	Block(b Block) (taken int, err error)
}
