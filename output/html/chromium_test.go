package html

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kprobe/internal/fixture"
	"kprobe/output/recording"
)

// browser is a Chromium that is led through pipes, by the DevTools protocol.
type browser struct {
	t       *testing.T
	w       io.Writer
	r       *bufio.Reader
	id      int
	session string
	trouble []string // what the console has of errors
}

type answer struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

func chromium(t *testing.T) *browser {
	t.Helper()
	tool := fixture.NeedTool(t, "chromium")
	theirs, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r, its, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	// Not t.TempDir: its helpers may still write there as it is removed.
	home, err := os.MkdirTemp("", "kprobe-chromium")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(tool, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--disable-background-networking", "--disable-extensions", "--remote-debugging-pipe", "--user-data-dir="+home, "--window-size=1200,900", "about:blank")
	cmd.Env = append(os.Environ(), "HOME="+home)
	cmd.ExtraFiles = []*os.File{theirs, its}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = theirs.Close(), its.Close()
	b := &browser{t: t, w: w, r: bufio.NewReader(r)}
	// A browser that hangs ends, and with it what is read.
	late := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() {
		b.session = ""
		_ = b.send("Browser.close", nil)
		_, _ = io.Copy(io.Discard, r)
		_ = cmd.Wait()
		late.Stop()
		_, _ = w.Close(), r.Close()
		_ = os.RemoveAll(home)
	})
	return b
}

func (b *browser) send(method string, params any) error {
	b.id++
	m := map[string]any{"id": b.id, "method": method}
	if params != nil {
		m["params"] = params
	}
	if b.session != "" {
		m["sessionId"] = b.session
	}
	text, err := json.Marshal(m)
	if err == nil {
		_, err = b.w.Write(append(text, 0))
	}
	return err
}

// next is what the browser says next.
func (b *browser) next() (a answer) {
	b.t.Helper()
	text, err := b.r.ReadBytes(0)
	if err != nil {
		b.t.Fatalf("the browser has ended: %v", err)
	}
	if err := json.Unmarshal(text[:len(text)-1], &a); err != nil {
		b.t.Fatal(err)
	}
	switch {
	case a.Method == "Runtime.exceptionThrown", a.Method == "Log.entryAdded", a.Method == "Runtime.consoleAPICalled":
		b.trouble = append(b.trouble, string(a.Params))
	}
	return a
}

func (b *browser) call(method string, params, result any) {
	b.t.Helper()
	if err := b.send(method, params); err != nil {
		b.t.Fatal(err)
	}
	for id := b.id; ; {
		a := b.next()
		if a.ID != id {
			continue
		}
		if a.Error != nil {
			b.t.Fatalf("%s: %s", method, a.Error)
		}
		if result != nil {
			if err := json.Unmarshal(a.Result, result); err != nil {
				b.t.Fatal(err)
			}
		}
		return
	}
}

type object = map[string]any

// open loads a page into a tab.
func (b *browser) open(page string) {
	b.t.Helper()
	name := filepath.Join(b.t.TempDir(), "page.html")
	if err := os.WriteFile(name, []byte(page), 0o600); err != nil {
		b.t.Fatal(err)
	}
	var target struct{ TargetID, SessionID string }
	b.session = ""
	b.call("Target.createTarget", object{"url": "about:blank"}, &target)
	b.call("Target.attachToTarget", object{"targetId": target.TargetID, "flatten": true}, &target)
	b.session = target.SessionID
	for _, domain := range []string{"Runtime", "Log", "Page"} {
		b.call(domain+".enable", nil, nil)
	}
	if err := b.send("Page.navigate", object{"url": "file://" + name}); err != nil {
		b.t.Fatal(err)
	}
	for b.next().Method != "Page.loadEventFired" {
	}
}

// eval gives what an expression is, when what it promises is there.
func (b *browser) eval(expression string) string {
	b.t.Helper()
	var out struct {
		Result           struct{ Value any }
		ExceptionDetails json.RawMessage
	}
	b.call("Runtime.evaluate", object{"expression": expression, "returnByValue": true, "awaitPromise": true}, &out)
	if out.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", expression, out.ExceptionDetails)
	}
	return fmt.Sprint(out.Result.Value)
}

// key presses a key.
func (b *browser) key(names ...string) {
	b.t.Helper()
	for _, name := range names {
		p := object{"type": "keyDown", "key": name, "code": name}
		if len(name) == 1 {
			p["text"] = name
		} else if name == "Enter" {
			p["text"], p["windowsVirtualKeyCode"] = "\r", 13
		}
		b.call("Input.dispatchKeyEvent", p, nil)
		p["type"] = "keyUp"
		delete(p, "text")
		b.call("Input.dispatchKeyEvent", p, nil)
	}
}

func (b *browser) want(what, expression, want string) {
	b.t.Helper()
	if got := b.eval(expression); got != want {
		b.t.Errorf("%s: %s is %q, want %q", what, expression, got, want)
	}
}

// dots counts the colours of a canvas.
const dots = `(id => { const c = document.getElementById(id), d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data, s = new Set();
for (let i = 0; i < d.length; i += 4) s.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]); return s.size > 5; })`

// TestChromium opens pages in a browser, and uses them by keyboard and mouse.
func TestChromium(t *testing.T) {
	b := chromium(t)
	for _, theme := range []string{"light", "dark"} {
		b.open(made(t, requests(t, 2, 100), requests(t, 1, 90)))
		b.call("Emulation.setEmulatedMedia", object{"features": []object{{"name": "prefers-color-scheme", "value": theme}}}, nil)
		b.want(theme, `getComputedStyle(document.body).backgroundColor`, map[string]string{"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 27)"}[theme])
		b.want("heading", `document.querySelector("h1").textContent`, hostile[0]+" beside old.kprobe")
		b.want("root", `document.querySelector("#flame [role=treeitem]").textContent`, "all")
		b.want("names are text", `[...document.querySelectorAll("#flame [role=treeitem]")].some(e => e.node.name === "</script><script>alert(1)</script>") && document.querySelectorAll("img").length === 0`, "true")
		b.want("timeline", dots+`("time")`, "true")
		b.want("heat map", dots+`("heat")`, "true")
	}
	const at = `document.activeElement.getAttribute("aria-label").split(":")[0]`

	// The flame graph, by keys.
	b.eval(`document.querySelector("#flame [tabindex='0']").focus()`)
	b.key("ArrowDown")
	b.want("down", at, "main")
	b.eval(`void (window.before = document.activeElement)`)
	b.call("Emulation.setDeviceMetricsOverride", object{"width": 700, "height": 900, "deviceScaleFactor": 2, "mobile": false}, nil)
	// It is drawn anew, and what has the focus keeps it.
	b.want("resized", `new Promise(done => { const look = () => !before.isConnected ? done(document.activeElement.getAttribute("aria-label").split(":")[0]) : requestAnimationFrame(look); look(); })`, "main")
	b.key("ArrowDown", "Enter")
	if zoomed := b.eval(at); zoomed == "main" || zoomed == "all" {
		t.Errorf("Enter zoomed to %s", zoomed)
	}
	b.want("zoomed", `document.activeElement.offsetWidth === document.getElementById("flame").clientWidth`, "true")
	b.want("told", `document.getElementById("status").textContent.includes("% of all")`, "true")
	b.key("Escape")
	b.want("out", at, "main")
	b.key("Escape", "ArrowUp")
	b.want("up", at, "all")
	b.eval(`[...document.querySelectorAll("#flame [role=treeitem]")].find(e => e.node.name === "main").click()`)
	b.want("click", `document.querySelectorAll("#flame .above").length`, "1")

	// Search, from anywhere.
	b.key("/")
	b.want("search", `document.activeElement.id`, "search")
	b.key("w", "o", "r", "k")
	b.want("found", `document.querySelectorAll("#flame .found").length > 1 && /paths, .* % of all; 1 row of the table/.test(document.getElementById("found").textContent)`, "true")
	b.want("rows", `[...document.querySelectorAll("tbody tr")].filter(r => !r.hidden).length`, "1")
	b.key("Escape")
	b.want("nothing is searched for", `document.querySelectorAll("#flame .found, tbody tr[hidden]").length`, "0")

	// The table.
	b.eval(`[...document.querySelectorAll("thead button")].find(e => e.textContent === "calls").click()`)
	b.want("most calls", `document.querySelector("tbody th").textContent`, "work")
	b.eval(`document.querySelector("thead [aria-sort] button").click()`)
	b.want("fewest calls", `document.querySelector("tbody th").textContent + document.querySelector("thead [aria-sort]").getAttribute("aria-sort")`, "mainascending")

	// Timeline and heat map.
	const frame = `new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(document.getElementById("time-text").textContent))))`
	all := b.eval(frame)
	b.eval(`document.getElementById("time-box").focus()`)
	b.key("]", "]", "Enter")
	zoomed := b.eval(frame)
	b.want("a call is told", `/: .*, from .*, .*-1/.test(document.getElementById("status").textContent)`, "true")
	b.key("+")
	if more := b.eval(frame); zoomed == all || more == zoomed {
		t.Errorf("the timeline doesn't zoom: %q, %q, %q", all, zoomed, more)
	}
	b.key("Escape")
	b.want("all of the timeline", frame, all)
	b.eval(`document.getElementById("heat").focus()`)
	b.key("ArrowRight", "ArrowUp")
	b.want("a cell is told", `/^\d+ calls? of .* to .*, ended from/.test(document.getElementById("status").textContent)`, "true")
	b.eval(`{ const c = document.getElementById("heat-choice"); c.value = "1"; c.dispatchEvent(new Event("change")); }`)
	b.want("one function", frame+`.then(() => document.getElementById("heat-text").textContent.split(":")[0])`, "work")

	// Recordings that have less: hits with stacks, and nothing at all.
	b.open(made(t, stacks(t), nil))
	b.want("stacks", `[...document.querySelectorAll("#flame [role=treeitem]")].map(e => e.textContent).join()`, "all,main,work")
	b.want("no calls", `document.querySelectorAll("canvas").length + document.querySelector("#time-part p").textContent`, "0Nothing is in it: the recording has no calls with times.")
	b.open(made(t, recorded(t, func(func(recording.Hit)) {}), nil))
	b.want("empty", `document.querySelector("#flame-part p").textContent`, "Nothing is in it: the recording has no calls, and no stacks.")

	// A page of counts, which has no scripts.
	b.open(countsPage(t))
	for theme, color := range map[string]string{"light": "rgb(217, 115, 26)", "dark": "rgb(224, 138, 60)"} {
		b.call("Emulation.setEmulatedMedia", object{"features": []object{{"name": "prefers-color-scheme", "value": theme}}}, nil)
		b.want(theme, `getComputedStyle(document.querySelector("figure .bar")).fill`, color)
	}
	b.want("names are text", `document.querySelector("h1").textContent`, hostile[2])
	b.want("bars lie in the figure", `[...document.querySelectorAll("figure .bar")].every(r => r.getBBox().x >= 0 && r.getBBox().x + r.getBBox().width <= 1100 && r.getBBox().y >= 0)`, "true")
	b.want("widths", `document.querySelectorAll("td.part").length > 100 && document.querySelector("td.part svg").clientWidth > 100`, "true")

	if len(b.trouble) > 0 {
		t.Errorf("the console has: %s", strings.Join(b.trouble, "\n"))
	}
}
