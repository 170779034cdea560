package output

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"kprobe/internal/quote"
)

// The bounds of a histogram, those of the kernel's hist triggers.
const (
	maxHistKeys  = 3
	maxHistSorts = 2
	minHistSize  = 128
	maxHistSize  = 131072
	histSize     = 2048
)

// hitcount is the value that every entry has.
const hitcount = "hitcount"

// The fields that every hit has (kernel/trace/trace_events_hist.c).
const (
	fieldPID  = "common_pid" // the thread's id, as ftrace has it
	fieldCPU  = "common_cpu"
	fieldComm = "common_comm" // the thread's name
	fieldTime = "common_timestamp"
	// The stack, of definitions that record one.
	fieldStack = "common_stacktrace"
	// Where the hit was: of probes, of return probes, and of those where the
	// function returned to (kernel/trace/trace_probe.h, FIELD_STRING_IP,
	// FIELD_STRING_FUNC and FIELD_STRING_RETIP).
	fieldIP    = "__probe_ip"
	fieldFunc  = "__probe_func"
	fieldRetIP = "__probe_ret_ip"
)

// hasField reports whether events of a kind, return probes or others, have a
// field of commonFields.
func hasField(name string, returns bool) bool {
	switch name {
	case fieldIP:
		return !returns
	case fieldFunc, fieldRetIP:
		return returns
	}
	return true
}

// HistSpec says what a histogram counts: the kernel's hist trigger. It is not
// changed once it is parsed.
type HistSpec struct {
	keys  []histField
	vals  []histField // besides the hit count
	sorts []histSort
	// ordered says that sorts were asked for.
	ordered bool
	size    int
}

type histField struct {
	name    string
	key     string // of a key: what it is called in JSON
	mod     string // hex, sym, sym-offset, log2, buckets, execname; of values hex, percent, graph; "" is none
	buckets uint64 // of buckets
}

type histSort struct {
	name       string
	descending bool
}

// HistError says what is wrong with a histogram, in the kernel's words.
type HistError struct {
	Text  string // as kernel/trace/trace_events_hist.c has it
	About string
}

// Error implements error.
func (e *HistError) Error() string { return e.Text + ": " + e.About }

// ParseHist parses KEY[,KEY…][:vals=VAL,…][:sort=FIELD[.descending],…][:size=N],
// what follows hist: in a trigger of the kernel; "keys=" may be left out. A
// KEY is the name of a fetched value, or common_pid, common_cpu, common_comm,
// common_timestamp, common_stacktrace, __probe_ip of an event that is no return,
// __probe_func and __probe_ret_ip of one that is, with one of the modifiers .hex
// .sym .sym-offset .log2 .buckets=N, and common_pid.execname. A VAL is the name of
// a value, or hitcount, with .hex, .percent (of the sum over all entries) or .graph
// (a bar, up to the largest of all entries).
func ParseHist(text string) (*HistSpec, error) {
	h := &HistSpec{size: histSize}
	text = strings.TrimPrefix(text, "hist:")
	for i, part := range strings.Split(text, ":") {
		name, list, ok := strings.Cut(part, "=")
		if i == 0 && (!ok || name != "keys" && name != "key") {
			name, list = "keys", part
		}
		if list == "" {
			return nil, fmt.Errorf("histogram %s: %q names nothing", text, part)
		}
		if err := h.part(name, list); err != nil {
			return nil, fmt.Errorf("histogram %s: %w", text, err)
		}
	}
	if len(h.keys) == 0 {
		return nil, fmt.Errorf("histogram %s: it has no key", text)
	}
	for i := range h.keys {
		h.keys[i].key = quote.Own(h.keys[i].name, func(name string) bool {
			return slices.ContainsFunc(h.keys[:i], func(f histField) bool { return f.key == name })
		})
	}
	for _, s := range h.sorts {
		if s.name != hitcount && !slices.ContainsFunc(append(h.keys[:len(h.keys):len(h.keys)], h.vals...), func(f histField) bool { return f.name == s.name }) {
			return nil, fmt.Errorf("histogram %s: %w", text, &HistError{"Sort field must be a key or a val", s.name})
		}
	}
	if h.ordered = len(h.sorts) > 0; !h.ordered {
		h.sorts = []histSort{{name: hitcount}}
	}
	return h, nil
}

func (h *HistSpec) part(name, list string) error {
	words := strings.Split(list, ",")
	switch name {
	case "keys", "key":
		if len(words) > maxHistKeys {
			return fmt.Errorf("%d keys; %d at most", len(words), maxHistKeys)
		}
		for _, w := range words {
			f, err := parseHistField(w)
			if err != nil {
				return err
			}
			h.keys = append(h.keys, f)
		}
	case "vals", "values", "val":
		for _, w := range words {
			f, err := parseHistVal(w)
			switch {
			case err != nil:
				return err
			case f.mod != "" && f.mod != "hex" && f.mod != "percent" && f.mod != "graph":
				return &HistError{"Invalid field modifier", w}
			case f.name == fieldStack:
				return &HistError{"A stack is no value", w}
			case f.name != hitcount || f.mod != "":
				h.vals = append(h.vals, f)
			}
		}
	case "sort":
		if len(words) > maxHistSorts {
			return &HistError{"Too many sort fields (Max = 2)", list}
		}
		for _, w := range words {
			field, order, ok := strings.Cut(w, ".")
			if ok && order != "descending" && order != "ascending" {
				return &HistError{"Invalid sort modifier", order}
			}
			h.sorts = append(h.sorts, histSort{field, order == "descending"})
		}
	case "size":
		n, err := strconv.Atoi(list)
		if err != nil || n < minHistSize || n > maxHistSize {
			return fmt.Errorf("size %s: %d to %d", list, minHistSize, maxHistSize)
		}
		// The kernel's maps have a power of two of entries.
		for h.size = minHistSize; h.size < n; h.size *= 2 {
		}
	default:
		return fmt.Errorf("%s is none of keys, vals, sort, size", name)
	}
	return nil
}

// parseHistVal splits NAME.MODIFIER of a value: percent and graph are a value's
// only, and may be members of what is a key.
func parseHistVal(w string) (histField, error) {
	for _, mod := range []string{"percent", "graph"} {
		if name, ok := strings.CutSuffix(w, "."+mod); ok && name != "" {
			return histField{name: name, mod: mod}, nil
		}
	}
	return parseHistField(w)
}

// parseHistField splits NAME.MODIFIER. A name may hold dots: a member's.
func parseHistField(w string) (histField, error) {
	f := histField{name: w}
	if i := strings.LastIndexByte(w, '.'); i > 0 {
		name, mod := w[:i], w[i+1:]
		switch mod {
		case "hex", "sym", "sym-offset", "log2", "execname":
			f.name, f.mod = name, mod
		default:
			if n, ok := strings.CutPrefix(mod, "buckets="); ok {
				v, err := strconv.ParseUint(n, 0, 64)
				if err != nil || v == 0 {
					return f, &HistError{"Invalid field modifier", w}
				}
				f.name, f.mod, f.buckets = name, "buckets", v
			}
		}
	}
	if f.name == "stacktrace" {
		f.name = fieldStack // as kernels before 6.4 call it
	}
	if f.name == fieldStack && f.mod != "" {
		return f, &HistError{"Invalid field modifier", w}
	}
	if f.name == "" {
		return f, fmt.Errorf("a field has no name")
	}
	if (f.mod == "execname") != (f.mod != "" && f.name == fieldPID && f.mod != "hex") {
		return f, &HistError{"Invalid field modifier", w}
	}
	return f, nil
}

// Stack reports whether the histogram needs hits with a stack.
func (h *HistSpec) Stack() bool {
	return slices.ContainsFunc(h.keys, func(f histField) bool { return f.name == fieldStack })
}

// Where is the first field, of those that say where a hit was, that return
// probes, or the others, don't have; "" is none.
func (h *HistSpec) Where(returns bool) string {
	for _, list := range [...][]histField{h.keys, h.vals} {
		for _, f := range list {
			if !hasField(f.name, returns) {
				return f.name
			}
		}
	}
	return ""
}

// Args are the names of fetched values that the histogram needs.
func (h *HistSpec) Args() []string {
	var out []string
	for i, list := range [...][]histField{h.keys, h.vals} {
		for _, f := range list {
			if i == 1 && f.name == hitcount {
				continue
			}
			if !slices.Contains(commonFields, f.name) && !slices.Contains(out, f.name) {
				out = append(out, f.name)
			}
		}
	}
	return out
}

// String gives the trigger as the kernel prints it above a histogram.
func (h *HistSpec) String() string {
	var b strings.Builder
	b.WriteString("hist:keys=")
	for i, f := range h.keys {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(f.String())
	}
	b.WriteString(":vals=" + hitcount)
	for _, f := range h.vals {
		b.WriteString("," + f.String())
	}
	b.WriteString(":sort=")
	for i, s := range h.sorts {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(s.name)
		if s.descending {
			b.WriteString(".descending")
		}
	}
	fmt.Fprintf(&b, ":size=%d", h.size)
	return b.String()
}

func (f histField) String() string {
	switch f.mod {
	case "":
		return f.name
	case "buckets":
		return fmt.Sprintf("%s.buckets=%d", f.name, f.buckets)
	}
	return f.name + "." + f.mod
}
