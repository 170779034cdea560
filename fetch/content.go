package fetch

// Content says how to find the contents of a container in memory, if its structure itself tells
// a person nothing: the elements of a std::vector, the nodes of a map, what a Box points to. It
// is made from debug information, is never changed afterwards, and may refer back to itself.
//
// All places are Trails from the address of the value, or of a node of it.
type Content struct {
	Kind ContentKind
	// Name is the type in its source's words.
	Name string
	// Size is the bytes of the value itself.
	Size int64
	// Type is how a ContentPlain is read, all of it at once.
	Type Type

	// Ptr is where the elements start: the first element, node, or control byte.
	Ptr Trail
	// Count is the number of elements. If it is nil, lists end at End, and for sequences
	// Bytes tells.
	Count Trail
	// Bytes is the number of bytes of all elements.
	Bytes Trail
	// First and Cap, of sequences that are rings, are the index of the first element, and
	// the number of elements for which there is room. For a deque First is counted from the
	// first chunk.
	First, Cap Trail
	// End, of lists and trees, is the address of the object after the last element; nil is
	// 0.
	End Trail
	// Next leads from a node of a list to the next one. Left, Right and Parent lead from a
	// node of a tree. At leads from a node to its element.
	Next, Left, Right, Parent, At Trail
	// Stride is the distance of elements in bytes. For strings it is the size of their
	// units, which are bytes (0), UTF-16 (2) or UTF-32 (4).
	Stride int64
	Elem   *Content

	// Tag says which of Cases a variant is, and whether an optional has a value; for a
	// pointer, whether its target still exists.
	Tag     Trail
	Members []ContentMember
	// BTree and Map are for those kinds only.
	BTree *BTreeContent
	Map   *MapContent
	// Dynamic, of an interface, finds the Content of a type by its address.
	Dynamic func(at uint64) *Content `json:"-"`

	Style ContentStyle
	// Word says that the value is one pointer, which Go stores in the interface itself.
	Word bool
}

// Trail leads from an address to a value. An empty Trail that is not nil is the address itself.
type Trail []Step

// ContentKind is how a container keeps its contents.
type ContentKind uint8

// The kinds of containers.
const (
	ContentPlain     ContentKind = iota // Type, in place
	ContentText                         // Count bytes or units at Ptr, or up to NUL
	ContentSequence                     // elements side by side from Ptr on
	ContentList                         // nodes, from Ptr by Next
	ContentTree                         // nodes of a binary tree, from Ptr, the leftmost, on
	ContentDeque                        // chunks of Cap elements, whose addresses are at Ptr
	ContentHash                         // Rust's: Cap+1 control bytes at Ptr, elements before them
	ContentBTree                        // Rust's
	ContentMap                          // Go's
	ContentStruct                       // Members
	ContentPointer                      // Elem, where Ptr leads, which may be nowhere
	ContentOptional                     // Elem, if Tag is not 0
	ContentVariant                      // that of Members which has Tag among its Cases
	ContentInterface                    // Go's: the address of a type's description at Tag, the value at Ptr
	ContentTime                         // Go's time.Time: wall at Ptr, ext at Count
	// ContentBits has bits from Ptr on: Count of them, or 8 * Bytes + Cap - First from bit
	// First on.
	ContentBits
)

// ContentStyle is how a container is printed.
type ContentStyle uint8

// The ways to print containers. What has none prints as {1,2}.
const (
	StyleList ContentStyle = iota
	// StyleMap is for elements that are pairs: {["a"]=1}, or an object in JSON if keys are
	// strings.
	StyleMap
	// StyleMultimap is for a map that may have a key more than once: no object.
	StyleMultimap
	// StyleTuple is for members without names.
	StyleTuple
	// StyleIndex is for a variant that is named by its number: {[1]=2.5}.
	StyleIndex
	// StyleHidden is for a structure or variant that prints as its contents.
	StyleHidden
)

// ContentMember is a member of a structure, or a variant.
type ContentMember struct {
	Name string
	Off  int64
	Elem *Content
	// Cases are the values of Tag that mean this variant. If there are none, it is any
	// other value.
	Cases []uint64
}

// BTreeContent says where Rust's B-trees have their parts, from the address of a node.
type BTreeContent struct {
	Height     Trail // of the root, from the tree; Ptr is the root
	Len        Trail // of a node
	Keys, Vals int64
	Edges      int64
	KeyStride  int64
	ValStride  int64
	Key, Val   *Content
}

// MapContent says where Go's maps have their parts.
type MapContent struct {
	// Swiss maps (from Go 1.24 on): from the map, Dir is the address of the directory,
	// or of the only group where DirLen is 0; from a table, Groups is the address of
	// its groups and Mask one less than their number.
	Swiss             bool
	Dir, DirLen       Trail
	Groups, Mask      Trail
	Ctrl, Slots       int64 // in a group
	GroupSize         int64
	Key, Val          int64 // in a slot, or in a bucket: of the first
	KeyFar, ValFar    bool  // what is there is the address of the key, or of the value
	Stride, ValStride int64 // of keys, and of values

	// Buckets (before): Buckets is the address of 1<<B of them, Old of those that are
	// being moved; a bucket has eight marks at Tops and the next of its chain at Over.
	Buckets, Old, B, Flags Trail
	Tops, Over             int64
	BucketSize             int64

	KeyElem, ValElem *Content
}

// The limits of what is recorded of a container, unless a definition gives others.
const (
	DefaultElements = 8 // of each container
	DefaultDepth    = 3 // containers and pointers within each other
	MaxElements     = 256
	MaxDepth        = 8
)

// maxContent is the most bytes of content of one value, maxContentText of a text
// in it, and maxReads how often memory is looked at for it: what a loop of nodes, or
// a number that was never written, can cost.
const (
	maxContent     = 16 << 10
	maxContentText = 512
	maxReads       = 4096
)

// Flat reports whether all of the contents lie in the value itself, so that a copy of it
// suffices.
func (c *Content) Flat() bool { return c.flat(0) }

func (c *Content) flat(depth int) bool {
	if depth > MaxDepth {
		return false
	}
	switch c.Kind {
	case ContentPlain, ContentTime:
		return true
	case ContentOptional:
		return c.Elem.flat(depth + 1)
	case ContentStruct, ContentVariant:
		for i := range c.Members {
			if !c.Members[i].Elem.flat(depth + 1) {
				return false
			}
		}
		return true
	}
	return false
}

// Copied reports whether a copy of one piece of memory, whose place and size are a few steps
// away, has all of the contents. A detour can make such a copy.
func (c *Content) Copied() bool {
	switch c.Kind {
	case ContentSequence:
		return c.Cap == nil && c.Elem.Flat() && c.unit() > 0 && c.unit() <= MaxString
	case ContentPointer:
		return c.Tag == nil && c.Elem.Flat() && c.Elem.Size > 0 && c.Elem.Size <= MaxString
	}
	return c.Flat() && c.Size > 0 && c.Size <= MaxString
}

// unit is the number of bytes that a copy is made of multiples of.
func (c *Content) unit() int64 {
	switch c.Kind {
	case ContentSequence:
		return c.Stride
	case ContentPointer:
		return c.Elem.Size
	}
	return c.Size
}

// tracer returns why the contents of a value need a tracer; "" if a detour can copy them.
func (c *Content) tracer() string {
	switch {
	case c.Copied():
		return ""
	case c.Kind == ContentSequence && c.Cap == nil, c.Kind == ContentPointer, c.Kind == ContentStruct, c.Kind == ContentOptional, c.Kind == ContentVariant:
		return "which leads to more than one piece of memory"
	}
	return "whose elements are found by a walk"
}

// at gives a path for a value that lies off bytes behind the address.
func (p Trail) from(ch Chain, off int64) Chain {
	steps := make([]Step, 0, len(ch.Steps)+len(ch.Loads)+len(p)+1)
	steps = append(steps, ch.Steps...)
	for _, l := range ch.Loads {
		steps = append(steps, Step{Op: StepLoad, Imm: uint64(l.Off), Size: 8})
	}
	if off != 0 {
		steps = append(steps, Step{Op: StepAdd, Imm: uint64(off)})
	}
	steps = append(steps, p...)
	ch.From, ch.Source, ch.Steps, ch.Loads = ch.root(), SourceComputed, steps, nil
	return ch
}

// containerArg makes the argument that records the container at chain + off.
func containerArg(ch Chain, off int64, t Type, limit Limit) ArgProgram {
	c := t.Layout.Content
	ap := ArgProgram{Chain: ch, StoreOff: off, Type: t, Bounds: limit}
	if !c.Copied() {
		ap.Store = StoreContent
		return ap
	}
	ap.Store, ap.Unit, ap.Max = StoreCounted, int(c.unit()), 1
	n := Chain{Source: SourceImm, Imm: 1}
	switch c.Kind {
	case ContentSequence:
		ap.Max = limit.elements(c)
		ap.Chain, ap.StoreOff = c.Ptr.from(ch, off), 0
		if c.Count != nil {
			n = c.Count.from(ch, off)
		} else {
			n, ap.Max, ap.Unit = c.Bytes.from(ch, off), ap.Max*ap.Unit, 1
		}
	case ContentPointer:
		ap.Chain, ap.StoreOff = append(c.Ptr[:len(c.Ptr):len(c.Ptr)], c.At...).from(ch, off), 0
		n = c.Ptr.from(ch, off)
		n.Steps = append(n.Steps, Step{Op: StepNe})
	}
	ap.Len = &n
	return ap
}

// Limit bounds what is recorded of containers. 0 is the default.
type Limit struct{ Elements, Depth uint16 }

// elements is how many of a sequence a copy takes.
func (l Limit) elements(c *Content) int {
	n := DefaultElements
	if l.Elements != 0 {
		n = int(l.Elements)
	}
	return max(1, min(n, int(MaxString/max(c.unit(), 1))))
}
