package fetch

import (
	"encoding/binary"
	"strconv"
	"strings"
	"testing"
)

func loadAt(off uint64) Trail { return Trail{{Op: StepLoad, Imm: off, Size: 8}} }

func intContent() *Content {
	return &Content{Kind: ContentPlain, Name: "int", Size: 4, Type: Type{Base: Signed, Size: 4}}
}

func containerOf(c *Content) Variable {
	return Variable{Chain: Chain{Reg: DI}, InMemory: true, Type: Type{Base: Container, Size: 8, Layout: &Layout{Name: c.Name, Content: c}}}
}

// vectorOf, listOf and treeOf are made as libstdc++ has them.
func vectorOf(elem *Content) *Content {
	return &Content{Kind: ContentSequence, Name: "vector", Size: 24, Ptr: loadAt(0), Bytes: Trail{{Op: StepDiff, Imm: 8, Imm2: 0}}, Stride: elem.Size, Elem: elem}
}

func listOf(counted bool) *Content {
	c := &Content{Kind: ContentList, Name: "list", Size: 24, Ptr: loadAt(0), End: Trail{}, Next: loadAt(0), At: Trail{{Op: StepAdd, Imm: 16}}, Elem: intContent()}
	if counted {
		c.Count = loadAt(16)
	}
	return c
}

func treeOf() *Content {
	return &Content{Kind: ContentTree, Name: "set", Size: 40, Ptr: loadAt(16), End: Trail{}, Count: loadAt(32),
		Parent: loadAt(0), Left: loadAt(8), Right: loadAt(16), At: Trail{{Op: StepAdd, Imm: 24}}, Elem: intContent()}
}

// Keys of a map that look the same in JSON (they were cut, or are not UTF-8) are different ones there.
func TestMapKeysInJSON(t *testing.T) {
	text := &Content{Kind: ContentText}
	c := &Content{Kind: ContentMap, Map: &MapContent{KeyElem: text, ValElem: text}}
	for _, tt := range []struct {
		keys []string
		want string
	}{
		{[]string{"a", "b"}, `{"a":"0","b":"1"}`},
		{[]string{"a", "a", "b", "a"}, `{"a":"0","a#2":"1","b":"2","a#3":"3"}`},
		{[]string{"a", "a", "a#2", "a"}, `{"a":"0","a#3":"1","a#2":"2","a#4":"3"}`},
		{[]string{"x\xff", "x\xfe", "x\ufffd", "x"}, `{"x\ufffd":"0","x\ufffd#2":"1","x` + "\ufffd" + `#3":"2","x":"3"}`},
		{[]string{"", "?", "?"}, `{"":"0","#2":null,"#3":null}`}, // pairs that could not be read
	} {
		v := &Value{}
		for i, key := range tt.keys {
			pair := Value{Elems: []Value{{Bytes: []byte(key)}, {Bytes: strconv.AppendInt(nil, int64(i), 10)}}}
			if key == "?" {
				pair = Value{Fault: true}
			}
			v.Elems = append(v.Elems, pair)
		}
		if got := string(c.appendJSON(nil, v, nil)); got != tt.want {
			t.Errorf("%q: got %s, want %s", tt.keys, got, tt.want)
		}
	}
}

// What memory holds that was never written, was moved away, is being changed or
// lies is bounded and marked, and never another value.
func TestHostileContainers(t *testing.T) {
	const at = 0x20000
	type words map[uint64]uint64
	node := func(i uint64) uint64 { return 0x30000 + 0x100*i }
	for _, c := range []struct {
		name string
		c    *Content
		mem  words
		want string
		copy bool
	}{
		{"empty", vectorOf(intContent()), words{at: 0, at + 8: 0}, "{}", true},
		{"two", vectorOf(intContent()), words{at: 0x30000, at + 8: 0x30008, 0x30000: 7 | 9<<32}, "{7,9}", true},
		{"the end before the start", vectorOf(intContent()), words{at: 0x30008, at + 8: 0x30000}, "(fault)", true},
		{"not a multiple", vectorOf(intContent()), words{at: 0x30000, at + 8: 0x30007, 0x30000: 7}, "(invalid)", true},
		{"a wild start", vectorOf(intContent()), words{at: 0x123456789, at + 8: 0x1234567a1}, "(fault)", true},
		{"no container at all", vectorOf(intContent()), words{}, "(fault)", true},
		{"a vector of vectors that is backwards", vectorOf(vectorOf(intContent())), words{at: 0x30030, at + 8: 0x30000}, "(invalid)", false},
		{"one wild row", vectorOf(vectorOf(intContent())), words{at: 0x30000, at + 8: 0x30030, 0x30000: 0, 0x30008: 0, 0x30010: 0, 0x30018: 0xdead0000, 0x30020: 0xdead0008, 0x30028: 0}, "{{},{(fault),(fault)}}", false},
		{"a list of two", listOf(true), words{at: node(1), at + 16: 2, node(1): node(2), node(1) + 16: 5, node(2): at, node(2) + 16: 6}, "{5,6}", false},
		{"a list that ends too soon", listOf(true), words{at: node(1), at + 16: 3, node(1): node(2), node(1) + 16: 5, node(2): at, node(2) + 16: 6}, "(invalid)", false},
		{"a circle", listOf(false), words{at: node(1), node(1): node(1), node(1) + 16: 5}, "{5,5,5,5,5,5,5,5,...}", false},
		{"a negative count", listOf(true), words{at: node(1), at + 16: ^uint64(0)}, "(invalid)", false},
		{"next is wild", listOf(true), words{at: node(1), at + 16: 2, node(1): 0xdead0000, node(1) + 16: 5}, "{5,(fault)}", false},
		{"next is null", listOf(true), words{at: node(1), at + 16: 2, node(1): 0, node(1) + 16: 5}, "(invalid)", false},
		{"a tree", treeOf(), words{at: node(2), at + 16: node(1), at + 32: 3,
			node(1): node(2), node(1) + 8: 0, node(1) + 16: 0, node(1) + 24: 1,
			node(2): at, node(2) + 8: node(1), node(2) + 16: node(3), node(2) + 24: 2,
			node(3): node(2), node(3) + 8: 0, node(3) + 16: 0, node(3) + 24: 3}, "{1,2,3}", false},
		{"a tree whose left is itself", treeOf(), words{at: node(1), at + 16: node(1), at + 32: 3,
			node(1): at, node(1) + 8: node(1), node(1) + 16: node(1), node(1) + 24: 1}, "(fault)", false},
		{"a tree that was never made", treeOf(), words{at: 0x4141414141414141, at + 16: 0x4141414141414141, at + 32: 0x4141414141414141}, "(fault)", false},
		{"a hash table without a power of 2", &Content{Kind: ContentHash, Size: 32, Ptr: loadAt(0), Cap: loadAt(8), Count: loadAt(24), Stride: 4, Elem: intContent()},
			words{at: 0x30000, at + 8: 6, at + 24: 2}, "(invalid)", false},
		{"a hash table that is emptier than it says", &Content{Kind: ContentHash, Size: 32, Ptr: loadAt(0), Cap: loadAt(8), Count: loadAt(24), Stride: 4, Elem: intContent()},
			words{at: 0x30000, at + 8: 7, at + 24: 2, 0x30000: ^uint64(0)}, "(invalid)", false},
		{"an optional that is neither", &Content{Kind: ContentOptional, Size: 8, Tag: Trail{{Op: StepLoad, Imm: 4, Size: 1}}, Ptr: Trail{}, Elem: intContent()}, words{at: 7 | 0x55<<32}, "(invalid)", true},
		{"an optional", &Content{Kind: ContentOptional, Size: 8, Tag: Trail{{Op: StepLoad, Imm: 4, Size: 1}}, Ptr: Trail{}, Elem: intContent()}, words{at: 7 | 1<<32}, "7", true},
		{"a variant without value", &Content{Kind: ContentVariant, Size: 8, Style: StyleIndex, Tag: Trail{{Op: StepLoad, Imm: 4, Size: 1}}, Members: []ContentMember{{Elem: intContent(), Cases: []uint64{0}}}}, words{at: 7 | 0xff<<32}, "(invalid)", true},
		{"a null pointer", &Content{Kind: ContentPointer, Size: 8, Ptr: loadAt(0), Elem: intContent()}, words{at: 0}, "0x0", true},
		{"a dangling pointer", &Content{Kind: ContentPointer, Size: 8, Ptr: loadAt(0), Elem: intContent()}, words{at: 0xdead0000}, "(fault)", true},
		{"a pointer to itself", func() *Content {
			c := &Content{Kind: ContentPointer, Size: 8, Ptr: loadAt(0)}
			c.Elem = c
			return c
		}(), words{at: at}, "{...}", false},
		{"a text that is longer than memory", &Content{Kind: ContentVariant, Style: StyleHidden, Size: 16, Tag: Trail{{Op: StepAnd}}, Members: []ContentMember{{Cases: []uint64{0}, Elem: &Content{Kind: ContentText, Size: 16, Ptr: loadAt(0), Count: loadAt(8)}}}},
			words{at: 0x30ffc, at + 8: 100}, "(fault)", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.c.Copied() != c.copy {
				t.Errorf("Copied is %v", c.c.Copied())
			}
			m := fakeMemory{}
			for a, v := range c.mem {
				var b [8]byte
				binary.LittleEndian.PutUint64(b[:], v)
				m.put(a, b[:])
			}
			env := testEnv()
			env.vars = map[string]Variable{"x": containerOf(c.c)}
			ctx := testContext()
			ctx.Mem, ctx.Regs.GPR[DI] = m, at
			got, _ := run(t, "p work x", env, ctx)
			if got != "x="+c.want {
				t.Errorf("got  %s\nwant x=%s", got, c.want)
			}
		})
	}
}

func TestContainerBounds(t *testing.T) {
	m := fakeMemory{}
	m.put64(0x20000, 0x30000)
	m.put64(0x20008, 0x30000+4*100)
	for i := range uint64(50) {
		m.put64(0x30000+8*i, 2*i|(2*i+1)<<32)
	}
	env := testEnv()
	env.vars = map[string]Variable{"x": containerOf(vectorOf(intContent()))}
	for def, want := range map[string]string{
		"p work x":                      "x={0,1,2,3,4,5,6,7,...}",
		"p work x elements=2":           "x={0,1,...}",
		"p work x depth=2 elements=3":   "x={0,1,2,...}",
		"p work x elements=100 depth=1": "x={0,1,2,",
	} {
		ctx := testContext()
		ctx.Mem, ctx.Regs.GPR[DI] = m, 0x20000
		if got, _ := run(t, def, env, ctx); got != want && (!strings.HasSuffix(want, ",") || !strings.HasPrefix(got, want) || strings.Contains(got, "...")) {
			t.Errorf("%s: %s, want %s", def, got, want)
		}
	}
	d := mustParse(t, "p:e work a=%di elements=4 depth=2 stack=3")
	if want := "p:kprobes/e work a=%di elements=4 depth=2 stack=3"; d.String() != want || d.Stack != 3 {
		t.Errorf("%s, want %s", d, want)
	}
	for _, bad := range []string{"p work x elements=0", "p work x elements=257", "p work x depth=9", "p work x elements=2 elements=3"} {
		if _, err := Parse(bad); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
}
