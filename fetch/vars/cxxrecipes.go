package vars

import "kprobe/fetch"

// cxxRecipe says where a container of C++'s standard library has its parts. It uses the names
// of the members, which are the library's own (_M_…, __…_). A path may have alternatives for
// versions of a library, separated by |.
type cxxRecipe struct {
	name string // of the template
	kind fetch.ContentKind
	// inner is the member in which all other members are looked up. elem and node refer to
	// its class.
	inner string
	// first leads to the first element or node. In sequences, last leads to the end of the
	// last element. end leads to the object that ends a list.
	first, last, end string
	count            string
	// next, left, right, parent and value are members of a node.
	next, left, right, parent, value string
	elem                             int    // which template parameter of inner's class is the element type
	node                             string // the name that inner's class has for its nodes
	template                         string // the nodes' own template: the text before and after the element's name
	behind                           string
	style                            fetch.ContentStyle
}

func cxxRecipes() []cxxRecipe {
	const (
		header   = "_M_impl._M_header"
		children = "__left_"
	)
	gnuTree := cxxRecipe{
		kind: fetch.ContentTree, inner: "_M_t", first: header + "._M_left", end: header, count: "_M_impl._M_node_count",
		left: "_M_left", right: "_M_right", parent: "_M_parent", value: "_M_storage|_M_value_field", elem: 1, node: "_Link_type|_Node", template: "_Rb_tree_node<",
	}
	llvmTree := cxxRecipe{
		kind: fetch.ContentTree, inner: "__tree_", first: "__begin_node_", end: "__pair1_.__value_|__end_node_", count: "__pair3_.__value_|__size_",
		left: children, right: "__right_", parent: "__parent_", value: "__value_", elem: 0, node: "__node|__node_pointer", template: "__tree_node<", behind: ", void *",
	}
	gnuHash := cxxRecipe{
		kind: fetch.ContentList, inner: "_M_h", first: "_M_before_begin._M_nxt", count: "_M_element_count",
		next: "_M_nxt", value: "_M_storage|_M_v", elem: 1, node: "__node_type|__node_ptr|_Node", template: "_Hash_node<",
	}
	llvmHash := cxxRecipe{
		kind: fetch.ContentList, inner: "__table_", first: "__p1_.__value_.__next_|__first_node_.__next_", count: "__p2_.__value_|__size_",
		next: "__next_", value: "__value_", elem: 0, node: "__node|__node_pointer", template: "__hash_node<", behind: ", void *",
	}
	list := []cxxRecipe{
		{name: "vector", kind: fetch.ContentSequence, inner: ".", first: "_M_impl._M_start|__begin_", last: "_M_impl._M_finish|__end_"},
		{name: "list", kind: fetch.ContentList, inner: ".", first: "_M_impl._M_node._M_next", end: "_M_impl._M_node", count: "_M_impl._M_node._M_size",
			next: "_M_next", value: "_M_storage|_M_data", node: "_Node", template: "_List_node<"},
		// Before C++11's ABI a list doesn't know its size.
		{name: "list", kind: fetch.ContentList, inner: ".", first: "_M_impl._M_node._M_next", end: "_M_impl._M_node",
			next: "_M_next", value: "_M_storage|_M_data", node: "_Node", template: "_List_node<"},
		{name: "list", kind: fetch.ContentList, inner: ".", first: "__end_.__next_", end: "__end_", count: "__size_alloc_.__value_|__size_",
			next: "__next_", value: "__value_", node: "__node|__node_type", template: "__list_node<", behind: ", void *"},
		{name: "forward_list", kind: fetch.ContentList, inner: ".", first: "_M_impl._M_head._M_next",
			next: "_M_next", value: "_M_storage|_M_value", node: "_Node", template: "_Fwd_list_node<"},
		{name: "forward_list", kind: fetch.ContentList, inner: ".", first: "__before_begin_.__value_.__next_|__before_begin_.__next_",
			next: "__next_", value: "__value_", node: "__node", template: "__forward_list_node<", behind: ", void *"},
	}
	for name, style := range map[string]fetch.ContentStyle{"map": fetch.StyleMap, "multimap": fetch.StyleMultimap, "set": 0, "multiset": 0} {
		for _, r := range [...]cxxRecipe{gnuTree, llvmTree} {
			r.name, r.style = name, style
			list = append(list, r)
			r.name = "unordered_" + name
		}
		for _, r := range [...]cxxRecipe{gnuHash, llvmHash} {
			r.name, r.style = "unordered_"+name, style
			list = append(list, r)
		}
	}
	return list
}
