package fetch

import "strings"

// Action is what a trigger does at a hit.
type Action uint8

// The actions, those of the kernel's event triggers
// (Documentation/trace/events.rst, Event triggers) and of its watchpoints.
const (
	TraceOn      Action = iota // hits are recorded, this one too
	TraceOff                   // hits behind this one are not recorded
	Snapshot                   // what is recorded up to this hit is kept, in spare buffers
	Stacktrace                 // the hit has its stack
	EnableEvent                // the event Target is switched on
	DisableEvent               // and off
	SetWprobe                  // the watchpoint Target watches what Field leads to
	ClearWprobe                // and nothing any more
	actionCount
)

// String returns the kernel's word.
func (a Action) String() string {
	return [...]string{"traceon", "traceoff", "snapshot", "stacktrace", "enable_event", "disable_event", "set_wprobe", "clear_wprobe"}[a]
}

// targeted reports whether the action is on another event.
func (a Action) targeted() bool { return a >= EnableEvent }

// Trigger is what is done at hits of an event: EVENT:ACTION[:N] [if FILTER].
// It isn't changed after ParseTrigger.
type Trigger struct {
	Group, Event string // at whose hits; Group may be "": any
	Action       Action
	// TargetGroup and Target name the event that is switched, or the watchpoint.
	// TargetGroup may be "": any.
	TargetGroup, Target string
	// Field is, of SetWprobe and ClearWprobe, the value that is an address, and Offset
	// what is added to it; Field may be "" of ClearWprobe: wherever it is.
	Field  string
	Offset int64
	Count  uint64 // how often it acts; 0: always
	// Text is the trigger as it was written.
	Text string

	filter               string // "" is none
	filterCol, actionCol int
	targetCol, fieldCol  int
}

// Switches reports whether a trigger switches an event.
func (t *Trigger) Switches() bool { return t.Action == EnableEvent || t.Action == DisableEvent }

// Of reports whether a trigger is at hits of an event.
func (t *Trigger) Of(group, event string) bool {
	return t.Event == event && (t.Group == "" || t.Group == group)
}

// On reports whether a trigger acts on an event.
func (t *Trigger) On(group, event string) bool {
	return t.Action.targeted() && t.Target == event && (t.TargetGroup == "" || t.TargetGroup == group)
}

// ParseTrigger parses EVENT:ACTION[:N] [if FILTER]. What the filter compares is known
// only with the event (Condition). Errors are *SyntaxError.
func ParseTrigger(text string) (*Trigger, error) {
	text = strings.TrimSpace(strings.NewReplacer("\n", " ", "\r", " ", "\t", " ").Replace(text))
	t := &Trigger{Text: text}
	head := text
	if i := strings.IndexByte(text, ' '); i >= 0 {
		head = text[:i]
		rest := strings.TrimLeft(text[i:], " ")
		at := len(text) - len(rest)
		word, filter, _ := strings.Cut(rest, " ")
		if word != "if" {
			return nil, newError(BadTrigger, text, at, "after the action, only 'if FILTER' may follow")
		}
		filter = strings.TrimLeft(filter, " ")
		if filter == "" {
			return nil, newError(NoEPFilter, text, len(text)+1, "")
		}
		t.filter, t.filterCol = filter, len(text)-len(filter)
	}
	if e := t.parseHead(head); e != nil {
		return nil, e
	}
	return t, nil
}

// part is a word between colons, with its column.
type part struct {
	text string
	col  int
}

func (t *Trigger) parseHead(head string) *SyntaxError {
	var parts []part
	at := 0
	for word := range strings.SplitSeq(head, ":") {
		parts = append(parts, part{word, at})
		at += len(word) + 1
	}
	var e *SyntaxError
	if t.Group, t.Event, e = t.name(parts[0]); e != nil {
		return e
	}
	if parts = parts[1:]; len(parts) > 1 && actionOf(parts[0].text) == actionCount && actionOf(parts[1].text) != actionCount && t.Group == "" {
		// GRP:EVENT:ACTION, as the kernel has it in enable_event.
		t.Group = t.Event
		if _, t.Event, e = t.name(parts[0]); e != nil {
			return e
		}
		parts = parts[1:]
	}
	if len(parts) == 0 || parts[0].text == "" {
		return newError(BadAction, t.Text, len(head), "after the event, write a colon and an action: "+actionWords())
	}
	t.actionCol = parts[0].col
	if t.Action = actionOf(parts[0].text); t.Action == actionCount {
		return newError(BadAction, t.Text, parts[0].col, "the actions are "+actionWords())
	}
	if parts = parts[1:]; t.Action.targeted() {
		if parts, e = t.target(head, parts); e != nil {
			return e
		}
	}
	if t.Action == SetWprobe || t.Action == ClearWprobe {
		if parts, e = t.field(head, parts); e != nil {
			return e
		}
	}
	return t.count(parts)
}

// name parses [GRP/]EVENT.
func (t *Trigger) name(p part) (group, event string, e *SyntaxError) {
	l := line{input: t.Text}
	group, event, e = parseName(&l, p.text, p.col)
	if e == nil && event == "" {
		e = newError(NoEventName, t.Text, p.col+len(p.text), "")
	}
	return group, event, e
}

// target parses the event that is acted on: EVENT, GRP/EVENT or GRP:EVENT.
func (t *Trigger) target(head string, parts []part) (rest []part, e *SyntaxError) {
	if len(parts) == 0 || parts[0].text == "" {
		return nil, newError(NoEventName, t.Text, len(head), "name the event that "+t.Action.String()+" acts on: "+t.Action.String()+":EVENT")
	}
	t.targetCol = parts[0].col
	if t.TargetGroup, t.Target, e = t.name(parts[0]); e != nil {
		return nil, e
	}
	if parts = parts[1:]; t.Switches() && len(parts) > 0 && t.TargetGroup == "" && !isDecimalLike(parts[0].text) && parts[0].text != "" {
		t.TargetGroup, t.targetCol = t.Target, parts[0].col
		if _, t.Target, e = t.name(parts[0]); e != nil {
			return nil, e
		}
		parts = parts[1:]
	}
	return parts, nil
}

// field parses FIELD[+OFFSET|-OFFSET].
func (t *Trigger) field(head string, parts []part) (rest []part, e *SyntaxError) {
	if len(parts) == 0 || parts[0].text == "" || t.Action == ClearWprobe && isDecimalLike(parts[0].text) {
		if t.Action == ClearWprobe && (len(parts) == 0 || parts[0].text != "") {
			return parts, nil
		}
		return nil, newError(FiltFieldNotFound, t.Text, len(head), "name the value that holds the address: "+t.Action.String()+":WPROBE:FIELD[+OFFSET]")
	}
	t.fieldCol, t.Field = parts[0].col, parts[0].text
	if i := offsetAt(t.Field); i > 0 {
		v, ok := parseInt(strings.TrimPrefix(t.Field[i:], "+"))
		if !ok {
			return nil, newError(BadDerefOffs, t.Text, t.fieldCol+i, "")
		}
		t.Field, t.Offset = t.Field[:i], v
	}
	return parts[1:], nil
}

func (t *Trigger) count(parts []part) *SyntaxError {
	if len(parts) == 0 {
		return nil
	}
	v, ok := parseUint(parts[0].text)
	if !ok || v == 0 || !isDecimal(parts[0].text) {
		return newError(BadTrigCount, t.Text, parts[0].col, "the number of times must be 1 or more")
	}
	if t.Count = v; len(parts) > 1 {
		return newError(BadTrigger, t.Text, parts[1].col-1, "after the number, only 'if FILTER' may follow")
	}
	return nil
}

// actionOf is the action of a word; actionCount: there is none.
func actionOf(word string) Action {
	for a := range actionCount {
		if a.String() == word {
			return a
		}
	}
	return actionCount
}

func actionWords() string {
	var words []string
	for a := range actionCount {
		words = append(words, a.String())
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

// Condition is the trigger's filter over what a definition of its event fetches; nil:
// it has none.
func (t *Trigger) Condition(d *Def) (*Filter, error) {
	if t.filter == "" {
		return nil, nil
	}
	f, e := d.filter(t.filter, t.Text, t.filterCol)
	if e != nil {
		return nil, e
	}
	return f, nil
}

// NoEvent is the error of a trigger whose event, which its text starts with, isn't there.
func (t *Trigger) NoEvent(detail string) error {
	return newError(NoSuchEvent, t.Text, 0, detail)
}

// NoTarget is that of one whose other event isn't.
func (t *Trigger) NoTarget(detail string) error {
	return newError(NoSuchEvent, t.Text, t.targetCol, detail)
}

// NoField is that of one whose field isn't a value of its event.
func (t *Trigger) NoField(detail string) error {
	return newError(FiltFieldNotFound, t.Text, t.fieldCol, detail)
}

// Refused is the error of an action that can't be had.
func (t *Trigger) Refused(why string) error {
	return newError(BadTrigger, t.Text, t.actionCol, why)
}
