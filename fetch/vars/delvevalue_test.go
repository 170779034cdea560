package vars

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

// delveVar is a variable as delve has it. The kind is reflect's.
type delveVar struct {
	Name, Type, Value, Unreadable string
	OnlyAddr                      bool
	Addr, Base                    uint64
	Flags                         uint16
	Kind                          reflect.Kind
	Len                           int64
	Children                      []delveVar
}

// Flags of delve's variables (service/api).
const (
	delveShadowed = 1 << 1
	delveConstant = 1 << 2
	delveArgument = 1 << 3
	delveResult   = 1 << 4
)

// delveFake is where delve's addresses of what is in registers begin (pkg/proc: fakeAddress…).
const delveFake = 0xbeef << 48

// atDelve is whether a value of kprobe's JSON is delve's; "" is agreement. What only one of them
// tells is counted in skipped.
func atDelve(have any, v *delveVar, skipped *int) string {
	differ := func() string {
		b, _ := json.Marshal(have)
		g, _ := json.Marshal(v)
		return fmt.Sprintf("%.300s, delve has %.600s", b, g)
	}
	if v.Unreadable != "" || v.OnlyAddr || have == nil && v.Addr >= delveFake { // which it takes for 0 where it isn't known
		*skipped++
		return ""
	}
	if m, ok := have.(map[string]any); ok && (v.Kind == reflect.String || v.Kind == reflect.Slice) {
		// Not all of its words are known, which delve takes for 0.
		for _, name := range []string{"str", "array"} {
			if p, _ := strconv.ParseUint(fmt.Sprint(m[name]), 0, 64); m[name] != nil && p != v.Base {
				return differ()
			}
		}
		if n := m["len"]; n != nil && fmt.Sprint(n) != strconv.FormatInt(v.Len, 10) && (v.Base != 0 || v.Len != 0) {
			return differ()
		}
		*skipped++
		return ""
	}
	switch k := v.Kind; {
	case k == reflect.Bool:
		if fmt.Sprint(have) != v.Value {
			return differ()
		}
	case k >= reflect.Int && k <= reflect.Uintptr:
		value, _, _ := strings.Cut(v.Value, " ") // a constant's name goes before the number in parentheses
		if _, n, ok := strings.Cut(v.Value, "("); ok {
			value = strings.TrimSuffix(n, ")")
		}
		if fmt.Sprint(have) != value {
			return differ()
		}
	case k == reflect.Float32 || k == reflect.Float64:
		h, err := strconv.ParseFloat(fmt.Sprint(have), 64)
		w, err2 := strconv.ParseFloat(v.Value, 64)
		if err != nil || err2 != nil || h != w && float32(h) != float32(w) && h == h {
			return differ()
		}
	case k == reflect.String:
		s, ok := have.(string)
		if !ok || s != v.Value && (int64(len(s)) >= v.Len || len(s) < 200 || !strings.HasPrefix(v.Value, strings.TrimSuffix(s, "..."))) {
			if ok && v.Value != strings.ToValidUTF8(v.Value, "") {
				*skipped++
				return ""
			}
			return differ()
		}
	case k == reflect.Slice || k == reflect.Array:
		if s, isText := have.(string); isText {
			b := make([]byte, 0, len(v.Children))
			for _, c := range v.Children {
				n, _ := strconv.ParseUint(c.Value, 10, 8)
				b = append(b, byte(n))
			}
			n := min(len(s), len(b))
			switch {
			case !utf8.Valid(b): // which JSON has otherwise
				*skipped++
			case s[:n] != string(b[:n]):
				return differ()
			}
			return ""
		}
		if have == nil && v.Len >= 1<<40 { // invalid, where debug information of an interface is wrong
			*skipped++
			return ""
		}
		list, ok := have.([]any)
		if !ok && v.Len == 0 && have == nil {
			return ""
		}
		if !ok || len(list) < min(int(v.Len), 24) {
			return differ()
		}
		for i := range v.Children {
			if i < len(list) {
				if s := atDelve(list[i], &v.Children[i], skipped); s != "" {
					return fmt.Sprintf("[%d]: %s", i, s)
				}
			}
		}
	case k == reflect.Pointer || k == reflect.UnsafePointer:
		if len(v.Children) != 1 {
			return differ()
		}
		s := fmt.Sprint(have)
		n, err := strconv.ParseUint(s, 0, 64)
		if _, isMap := have.(map[string]any); isMap || err != nil && have != nil {
			return atDelve(have, &v.Children[0], skipped)
		}
		if have == nil {
			n = 0
		}
		if n != v.Children[0].Addr {
			return differ()
		}
	case k == reflect.Struct:
		m, ok := have.(map[string]any)
		if !ok {
			*skipped++
			return ""
		}
		for i := range v.Children {
			c := &v.Children[i]
			name := c.Name[strings.LastIndexByte(c.Name, '.')+1:]
			h, ok := m[name]
			ok = ok && name != "_" // of which there may be several
			if !ok {
				*skipped++
			} else if s := atDelve(h, c, skipped); s != "" {
				return c.Name + ": " + s
			}
		}
	case k == reflect.Interface:
		if len(v.Children) == 0 || v.Children[0].Kind == reflect.Invalid {
			if m, ok := have.(map[string]any); ok {
				typ, ok := m["_type"]
				if !ok {
					typ, ok = m["tab"]
				}
				if ok && (typ == nil || fmt.Sprint(typ) == "0") { // what isn't known delve takes for 0
					*skipped++
					return ""
				}
			}
			if have != nil && len(v.Children) > 0 && v.Children[0].Addr == 0 && v.Children[0].Unreadable == "" {
				return differ()
			}
			return ""
		}
		m, ok := have.(map[string]any)
		if !ok {
			if have == nil {
				return differ()
			}
			*skipped++
			return ""
		}
		c := &v.Children[0]
		if m["type"] != nil && m["type"] != c.Type {
			return differ()
		}
		h, ok := m["value"]
		_, isNumber := h.(json.Number)
		switch _, isText := h.(string); {
		case ok && c.Kind == reflect.Pointer && len(c.Children) == 1 && (isText || isNumber && atDelve(h, c, new(int)) != ""):
			return atDelve(h, &c.Children[0], skipped) // what is behind the pointer
		case ok:
			return atDelve(h, c, skipped)
		}
		*skipped++
	case k == reflect.Map:
		return mapAtDelve(have, v, skipped, differ)
	case k == reflect.Chan:
		*skipped++
	default:
		*skipped++
	}
	return ""
}

func mapAtDelve(have any, v *delveVar, skipped *int, differ func() string) string {
	switch m := have.(type) {
	case nil:
		if v.Len != 0 {
			return differ()
		}
	case map[string]any:
		if len(m) < min(int(v.Len), 60) {
			return differ()
		}
		for i := 0; i+1 < len(v.Children); i += 2 {
			key := v.Children[i].Value
			if v.Children[i].Kind != reflect.String {
				*skipped++
				continue
			}
			h, ok := m[key]
			if !ok && len(m) == int(v.Len) {
				return fmt.Sprintf("no key %q in %v", key, have)
			}
			if ok {
				if s := atDelve(h, &v.Children[i+1], skipped); s != "" {
					return fmt.Sprintf("[%q]: %s", key, s)
				}
			}
		}
	case []any:
		if len(m) < min(int(v.Len), 60) {
			return differ()
		}
		for i := 0; i+1 < len(v.Children); i += 2 {
			found := false
			for _, e := range m {
				p, _ := e.(map[string]any)
				n := 0
				if atDelve(p["key"], &v.Children[i], &n) == "" && atDelve(p["value"], &v.Children[i+1], &n) == "" {
					found = true
				}
			}
			if !found && len(m) == int(v.Len) {
				return differ()
			}
		}
	default:
		return differ()
	}
	return ""
}
