package fetch

// Value is one decoded value of a record.
type Value struct {
	Fault     bool   // could not be read
	Truncated bool   // text was longer than what is recorded, or shown
	Int       uint64 // of scalars: as the slot holds it
	// Address says that a text wasn't recorded, and Int is where it lies: it is
	// one of a structure's that has too many, or none, at address 0, or its length is
	// negative.
	Address bool
	// Bytes is text, without NUL. It aliases the record, or the Value.
	Bytes []byte
	// Elems are an array's. Fault of an array means none could be read.
	Elems []Value
	// Invalid says that memory holds no such value: a length that is negative, a tree
	// with fewer nodes than it says. None is nothing: a null pointer, an empty
	// optional; with Truncated a container that was not looked into.
	Invalid, None bool

	dynamic *Content // of an interface
	symbol  []byte   // room for the text of a symbol
}
