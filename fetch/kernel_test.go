package fetch

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// kernelOracle asks the running kernel's uprobe_events what it makes of a
// definition.
type kernelOracle struct {
	t   *testing.T
	dir string
	obj string // a file that can be probed, and an offset in it
}

// newKernelOracle needs root and a tracefs with uprobe_events. It writes only
// events of its own group, and takes them out again.
func newKernelOracle(t *testing.T) *kernelOracle {
	if os.Getenv("KPROBE_TEST_FULL") != "1" {
		t.Skip("asks the running kernel: set KPROBE_TEST_FULL=1")
	}
	for _, dir := range []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"} {
		f, err := os.OpenFile(filepath.Join(dir, "uprobe_events"), os.O_WRONLY|os.O_APPEND, 0)
		if err == nil {
			f.Close()
			return &kernelOracle{t, dir, "/bin/sh:0x4000"}
		}
	}
	fixture.Missing(t, "a tracefs with uprobe_events that may be written")
	return nil
}

func (k *kernelOracle) write(file, text string) error {
	f, err := os.OpenFile(filepath.Join(k.dir, file), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(text + "\n")
	return err
}

// verdict is what came of a definition: the error's text and column, or "".
type verdict struct {
	text string
	col  int
}

func (v verdict) String() string {
	if v.text == "" {
		return "accepted"
	}
	return fmt.Sprintf("%q at %d", v.text, v.col)
}

// ask gives the kernel's verdict and takes the event out again.
func (k *kernelOracle) ask(def, event string) verdict {
	k.t.Helper()
	if err := os.WriteFile(filepath.Join(k.dir, "error_log"), nil, 0); err != nil {
		k.t.Fatal(err)
	}
	err := k.write("uprobe_events", def)
	if err == nil {
		if err := k.write("uprobe_events", "-:"+event); err != nil {
			k.t.Fatalf("take out %s: %v", event, err)
		}
		return verdict{}
	}
	log, _ := os.ReadFile(filepath.Join(k.dir, "error_log"))
	v := verdict{text: err.Error(), col: -1}
	for line := range strings.SplitSeq(string(log), "\n") {
		if _, text, ok := strings.Cut(line, ": error: "); ok {
			v.text = strings.TrimSpace(text)
		}
		if i := strings.IndexByte(line, '^'); i >= 0 && strings.TrimSpace(line) == "^" {
			v.col = i - len("  Command: ")
		}
	}
	return v
}

// ours gives Parse's verdict.
func ours(def string) verdict {
	_, err := Parse(def)
	var e *SyntaxError
	if errors.As(err, &e) {
		return verdict{e.Code.Text(), e.Col}
	}
	return verdict{}
}

// TestKernelAgrees compares verdicts on generated definitions, most of them
// wrong in some place.
func TestKernelAgrees(t *testing.T) {
	k := newKernelOracle(t)
	group := fmt.Sprintf("kpt%d", os.Getpid())
	rng := rand.New(rand.NewPCG(1, 2))
	differ := map[string]int{}
	const rounds = 3000
	for i := range rounds {
		event := fmt.Sprintf("%s/e%d", group, i)
		def := "p:" + event + " " + k.obj + " " + randomArgs(rng)
		kernel, we := k.ask(def, event), ours(def)
		if kernel == we || mayDiffer(def, kernel, we) {
			continue
		}
		key := kernel.text + " | " + we.text
		if differ[key]++; differ[key] <= 2 {
			t.Errorf("%s\n  kernel: %s\n  ours:   %s", def, kernel, we)
		}
	}
	t.Logf("%d definitions, differences by kind: %v", rounds, differ)
}

// mayDiffer is the list of what is different on purpose.
func mayDiffer(def string, kernel, we verdict) bool {
	switch {
	case kernel.text == BadBitfield.Text() && we.text == kernel.text:
		// The kernel's column forgets what a dereference has added to it.
		return true
	case strings.HasPrefix(kernel.text, "Symbol is not available with uprobe"):
		// Here it is.
		return true
	case strings.HasPrefix(kernel.text, "BTF is not available") && we.text == BadFetchArg.Text():
		// What can be no name is not looked up as one.
		return kernel.col == we.col
	case strings.Contains(def, "@none:"), strings.Contains(def, `\"`):
		// @MOD:SYM, and a colon or an equal sign inside an immediate string.
		return true
	case we.text == BadFetchArg.Text() && strings.Count(def, ")") > 0:
		// The kernel drops what follows the last parenthesis.
		return true
	}
	return false
}

// randomArgs makes one to three arguments out of pieces that both know, and
// damages some of them.
func randomArgs(r *rand.Rand) string {
	pick := func(s ...string) string { return s[r.IntN(len(s))] }
	var expr func(depth int) string
	expr = func(depth int) string {
		if depth > 0 && r.IntN(2) == 0 {
			return pick("+", "-") + pick("0", "8", "0x10", "010", "", "x") + "(" + expr(depth-1) + ")"
		}
		return pick("%ax", "%di", "%r9", "%orig_ax", "%nope", "$stack", "$stack0", "$stack99", "$stackp",
			"$comm", "$retval", "$none", "@0x1000", "@12zz", "@+16", "@+zz", `\1`, `\-5`, `\+7`, `\x`, `\"text"`, `\"te`, "&1", "")
	}
	var words []string
	for range 1 + r.IntN(3) {
		w := expr(3)
		if r.IntN(2) == 0 {
			w = pick("a", "b", "c", "a", "1x", "", "x.y", "common_pid", "__probe_ip") + "=" + w
		}
		if r.IntN(2) == 0 {
			w += ":" + pick("u8", "s16", "x32", "x64", "u64", "char", "string", "ustring", "b4@2/8", "b9@0/8", "b0@0/16", "b3@1/24", "b3/8", "b3@1", "bad", "", "x24")
			if r.IntN(3) == 0 {
				w += pick("[4]", "[64]", "[1]", "[65]", "[0]", "[x]", "[3", "[3]z", "[]", "[0x2]")
			}
		}
		if n := len(w); n > 0 && r.IntN(8) == 0 {
			at := r.IntN(n)
			w = w[:at] + pick("(", ")", "=", "+", "$", "@") + w[at+r.IntN(2):]
		}
		words = append(words, w)
	}
	return strings.Join(words, " ")
}

// TestKernelFilters compares filters' errors.
func TestKernelFilters(t *testing.T) {
	k := newKernelOracle(t)
	event := fmt.Sprintf("kptf%d/e", os.Getpid())
	args := " a=%di:u32 b=%si:s64 s=+0(%di):string x=%dx"
	def := "p:" + event + " " + k.obj + args
	if err := k.write("uprobe_events", def); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := k.write("uprobe_events", "-:"+event); err != nil {
			t.Error(err)
		}
	}()
	file := filepath.Join(k.dir, "events", event, "filter")
	rng := rand.New(rand.NewPCG(3, 4))
	differ := map[string]int{}
	const rounds = 3000
	for range rounds {
		f := randomFilter(rng)
		kernel := verdict{}
		if err := os.WriteFile(file, []byte(f), 0); err != nil {
			text, _ := os.ReadFile(file)
			kernel = filterVerdict(text)
		}
		d := def + " if " + f
		we := ours(d)
		we.col -= strings.Index(d, " if ") + 4
		if we.text == "" {
			we = verdict{}
		}
		// Inside a predicate the kernel's column is one too far.
		if kernel == we || kernel.text == we.text && kernel.col == we.col+1 {
			continue
		}
		if kernel.text == FiltInvalidCPUList.Text() {
			// It knows how many CPUs there are.
			continue
		}
		key := kernel.text + " | " + we.text
		if differ[key]++; differ[key] <= 2 {
			t.Errorf("%s\n  kernel: %s\n  ours:   %s", f, kernel, we)
		}
	}
	t.Logf("%d filters, differences by kind: %v", rounds, differ)
}

// filterVerdict reads a filter file after a refused write.
func filterVerdict(text []byte) verdict {
	v := verdict{text: "refused", col: -1}
	for line := range bytes.SplitSeq(text, []byte("\n")) {
		if t, ok := bytes.CutPrefix(line, []byte("parse_error: ")); ok {
			v.text = string(t)
		}
		if i := bytes.IndexByte(line, '^'); i >= 0 && len(bytes.TrimSpace(line)) == 1 {
			v.col = i
		}
	}
	return v
}

func randomFilter(r *rand.Rand) string {
	pick := func(s ...string) string { return s[r.IntN(len(s))] }
	var expr func(depth int) string
	expr = func(depth int) string {
		switch {
		case depth > 0 && r.IntN(3) == 0:
			return expr(depth-1) + pick(" && ", "||", " || ", "&&") + expr(depth-1)
		case depth > 0 && r.IntN(4) == 0:
			return pick("(", "!(", "( ") + expr(depth-1) + pick(")", " )", ")", ")", "")
		}
		return pick("a", "b", "s", "x", "nope", "common_pid", "CPU", "COMM", "s") + pick(" ", "") +
			pick("==", "!=", "<", "<=", ">", ">=", "&", "~", "=", "") + pick(" ", "") +
			pick("1", "0x10", "-3", "12z", `"text"`, `"te*"`, "'q'", `"open`, "CPUS{1,2-3}", "CPUS{x}", "CPUS{1", "(", "")
	}
	return expr(3)
}
