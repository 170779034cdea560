package mailbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"kprobe/fetch"
	"kprobe/probe/assess"
	"kprobe/probe/results"
	"kprobe/probe/ring"
)

var (
	errFound = errors.New("found nowhere")
	errOther = errors.New("of no class")
)

// placeError is an error of a class that is a type.
type placeError struct{ rule string }

func (e *placeError) Error() string { return e.rule }

var classes = Classes{
	{"place", func(err error) bool { var e *placeError; return errors.As(err, &e) }, func(text string) error { return &placeError{text} }},
	Sentinel("found", errFound),
}

func parse(t *testing.T, texts ...string) []*fetch.Def {
	t.Helper()
	var out []*fetch.Def
	for _, text := range texts {
		d, err := fetch.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, d)
	}
	return out
}

// TestDefinitions: what is asked for arrives as it was typed, with the file that it was
// pinned to.
func TestDefinitions(t *testing.T) {
	sent := parse(t, "p:web/x  work n=$arg1", "r /usr/lib/libm.so.6:exp v=$retval")
	pinned := *sent[0]
	pinned.Place.Module = "/pinned to/this"
	sent[0] = &pinned
	body, err := json.Marshal(Request{Op: Add, Defs: NewDefs(sent)})
	if err != nil {
		t.Fatal(err)
	}
	q, err := ReadRequest(body)
	if err != nil {
		t.Fatal(err)
	}
	got, err := q.Definitions()
	if err != nil || len(got) != 2 {
		t.Fatalf("%d definitions, %v", len(got), err)
	}
	for i, d := range got {
		if d.Text != sent[i].Text || d.Place.Module != sent[i].Place.Module || d.Event != sent[i].Event {
			t.Errorf("%+v, sent %+v", d, sent[i])
		}
	}
}

// TestHostileRequests: what isn't a request of definitions is an error that says which
// definition is at fault, to whoever asked.
func TestHostileRequests(t *testing.T) {
	for _, body := range []string{"", "{", "null", "[]", `"add"`, "7", `{"op":7}`, `{"defs":{}}`, `{"defs":[7]}`, `{"pid":"x"}`, `{"from":1e400}`,
		strings.Repeat("[", 40<<10), `{"defs":` + strings.Repeat(`[`, 40<<10)} {
		q, err := ReadRequest([]byte(body))
		if body == "null" {
			if err != nil || q.Op != "" {
				t.Errorf("null: %+v, %v", q, err)
			}
			continue
		}
		if err == nil || q != nil {
			t.Errorf("%.20s: %+v, %v", body, q, err)
		}
	}
	for _, tt := range []struct {
		op    string
		texts []string
		def   int // at fault, from 1
	}{
		{Add, []string{"p:a f", "", "p:b f"}, 2},
		{Add, []string{"p:a f", "p:b \x00\xff"}, 2},
		{Add, []string{"p:a f", "p:b f", "-:a"}, 3},
		{Remove, []string{"-:a", "p:a f"}, 2},
		{Remove, []string{strings.Repeat("-:", 1000)}, 1},
	} {
		q := Request{Op: tt.op}
		for _, text := range tt.texts {
			q.Defs = append(q.Defs, Def{Text: text})
		}
		defs, err := q.Definitions()
		if err == nil || defs != nil {
			t.Errorf("%q: %v, %v", tt.texts, defs, err)
			continue
		}
		mine := parse(t, "p:m0 f", "p:m1 f", "p:m2 f")
		_, theirs := classes.ReadAnswer(classes.Answer(err, defs), mine)
		var at *assess.DefError
		if !errors.As(theirs, &at) || at.Def != mine[tt.def-1] {
			t.Errorf("%q: the answer is %v", tt.texts, theirs)
		}
	}
}

// TestErrors: an error is to who asked what it is here: its text, class, definition and
// column.
func TestErrors(t *testing.T) {
	defs := parse(t, "p:a f x=$arg1", "p:b g")
	syntax := *defs[0].Error(fetch.BadProbeAddr, "what it is", errFound)
	syntax.Col = 5
	for _, err := range []error{
		errOther, errFound, fmt.Errorf("in libc: %w", errFound), &placeError{"not here"},
		fmt.Errorf("rule 3: %w", &placeError{"not here"}), fmt.Errorf("%w, and %w", &placeError{"either"}, errFound),
		&syntax, defs[1].Error(fetch.BadProbeAddr, "", nil), errors.New(""),
	} {
		for n, def := range []*fetch.Def{nil, defs[0], defs[1]} {
			mine := err
			if def != nil {
				mine = &assess.DefError{Def: def, Err: err}
			}
			var s *fetch.SyntaxError
			isSyntax := errors.As(err, &s)
			if isSyntax && (def == nil || s.Input != def.Text) {
				continue // such an error is of its definition
			}
			open, theirs := classes.ReadAnswer(classes.Answer(mine, defs), defs)
			var a, b *placeError
			var at *assess.DefError
			if theirs == nil || open != nil || theirs.Error() != mine.Error() || errors.As(mine, &a) != errors.As(theirs, &b) ||
				errors.As(theirs, &at) != (def != nil) || def != nil && at.Def != defs[n-1] {
				t.Errorf("%v (definition %d) is told as %v", mine, n, theirs)
				continue
			}
			if a == nil && errors.Is(mine, errFound) != errors.Is(theirs, errFound) {
				t.Errorf("%v is of another class than %v", theirs, mine)
			}
			var s2 *fetch.SyntaxError
			if errors.As(theirs, &s2) != isSyntax || isSyntax && (s.Code != s2.Code || s.Caret() != s2.Caret() || s.Detail != s2.Detail) {
				t.Errorf("%+v is told as %+v", s, s2)
			}
		}
	}
	if open, err := classes.ReadAnswer(classes.Answer(nil, defs), defs); open != nil || err != nil {
		t.Errorf("no error is told as %v, %v", open, err)
	}
}

// TestLongErrors: an answer with the longest texts has room in a mailbox.
func TestLongErrors(t *testing.T) {
	defs := parse(t, "p:a f")
	if n := len(classes.Answer(defs[0].Error(fetch.BadProbeAddr, strings.Repeat("\x01", 1<<20), nil), defs)); n > ring.MaxAnswer {
		t.Errorf("%d bytes", n)
	}
	for _, err := range []error{errors.New(strings.Repeat("\x01", 1<<20)), errors.New(strings.Repeat("<", 1<<20))} {
		answer := classes.Answer(err, defs)
		if _, told := classes.ReadAnswer(answer, defs); len(answer) > ring.MaxAnswer || !strings.HasPrefix(err.Error(), told.Error()) || told.Error() == "" {
			t.Errorf("%d bytes: %.80q", len(answer), told)
		}
	}
}

// TestOpenAnswer: a list of calls that doesn't go into one answer comes in several, whole
// and in order.
func TestOpenAnswer(t *testing.T) {
	var list []results.OpenCall
	for i := range 5000 {
		list = append(list, results.OpenCall{TID: i, Func: strings.Repeat("f", i%300), Event: "g/e", Entry: 1 << 60})
	}
	var got []results.OpenCall
	pages := 0
	for ; ; pages++ {
		b, err := (&Request{Op: Open, From: len(got)}).OpenAnswer(list)
		if err != nil || len(b) > ring.MaxAnswer {
			t.Fatalf("%d bytes, %v", len(b), err)
		}
		page, err := classes.ReadAnswer(b, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, page...); len(page) == 0 {
			break
		}
	}
	if pages < 2 || !slices.Equal(got, list) {
		t.Errorf("%d calls in %d answers", len(got), pages)
	}
	for _, from := range []int{-1, -1 << 62, len(list), 1 << 62} {
		b, err := (&Request{From: from}).OpenAnswer(list[:3])
		if err != nil {
			t.Fatal(err)
		}
		if page, err := classes.ReadAnswer(b, nil); err != nil || len(page) != 3 && from < 0 || len(page) != 0 && from > 0 {
			t.Errorf("from %d: %d calls, %v", from, len(page), err)
		}
	}
}

// FuzzAnswer has an answer say anything: who asked gets an error that can be shown, of a
// definition of its own, or calls.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"error":{}}`, `{"error":{"text":"x","def":1,"class":"found","code":3,"col":-5}}`, `{"error":{"def":1,"code":255,"col":1000000}}`,
		`{"error":{"def":-1,"code":9}}`, `{"error":{"def":99,"class":"place"}}`, `{"open":[{"TID":-1,"Entry":1}]}`, `{"open":{}}`, `{"error":[]}`, "",
	} {
		f.Add([]byte(seed))
	}
	def, err := fetch.Parse("p:a f x=$arg1")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		_, err := classes.ReadAnswer(body, []*fetch.Def{def})
		if err == nil {
			return
		}
		_ = err.Error()
		var at *assess.DefError
		if errors.As(err, &at) && at.Def != def {
			t.Errorf("of another definition: %v", err)
		}
		var s *fetch.SyntaxError
		if errors.As(err, &s) {
			if s.Input != def.Text {
				t.Errorf("of another text: %q", s.Input)
			}
			_ = s.Caret()
		}
	})
}

// FuzzRequest has a request say anything: it is definitions, or an error.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		`{"op":"add","defs":[{"text":"p:a f"},{"text":"-:a","module":"x"}]}`, `{"op":"remove","defs":[{"text":"-:a"}]}`,
		`{"op":"open","pid":-1,"from":-1}`, `{"defs":[{"text":"\u0000"}]}`, `[]`, "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		q, err := ReadRequest(body)
		if err != nil {
			return
		}
		if _, err := q.OpenAnswer(nil); err != nil {
			t.Error(err)
		}
		defs, err := q.Definitions()
		if err != nil {
			if len(classes.Answer(err, nil)) > ring.MaxAnswer {
				t.Error("the error has no room")
			}
			return
		}
		for _, d := range defs {
			if (d.Kind == fetch.Delete) != (q.Op == Remove) {
				t.Errorf("%s of %q", q.Op, d.Text)
			}
		}
	})
}
