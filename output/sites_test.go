package output

import (
	"encoding/json"
	"testing"
)

func TestSites(t *testing.T) {
	tests := []struct {
		name string
		site Site
		text string
		json string
	}{
		{
			"jump in a library",
			Site{PID: 7, Group: "g", Event: "e", Addr: 0x7fe71fab5250, Symbol: "usleep", Module: "libc.so.6", Optimized: true, Tactic: "guarded window", Age: 1500},
			"00007fe71fab5250  k  usleep+0x0  libc.so.6 [OPTIMIZED]\n",
			`{"type":"site","pid":7,"group":"g","event":"e","addr":"0x7fe71fab5250","kind":"k","sym":"usleep","off":0,"module":"libc.so.6","tactic":"guarded window","optimized":true,"disabled":false,"gone":false,"armed_ns":1500}`,
		},
		{
			"return in the program",
			Site{PID: 7, Group: "g", Event: "e", Addr: 0x401234, Return: true, Symbol: "work", Offset: 16},
			"0000000000401234  r  work+0x10    \n",
			`{"type":"site","pid":7,"group":"g","event":"e","addr":"0x401234","kind":"r","sym":"work","off":16,"optimized":false,"disabled":false,"gone":false}`,
		},
		{
			"disabled", Site{Addr: 1, Symbol: "f", Disabled: true, Optimized: true},
			"0000000000000001  k  f+0x0    [DISABLED][OPTIMIZED]\n",
			`{"type":"site","pid":0,"group":"","event":"","addr":"0x1","kind":"k","sym":"f","off":0,"optimized":true,"disabled":true,"gone":false}`,
		},
		{
			"gone, no symbol", Site{Addr: 0xffffffffff600000, Disabled: true, Gone: true},
			"ffffffffff600000  k  0xffffffffff600000    [GONE]\n",
			`{"type":"site","pid":0,"group":"","event":"","addr":"0xffffffffff600000","kind":"k","optimized":false,"disabled":true,"gone":true}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(AppendSite(nil, &tt.site)); got != tt.text {
				t.Errorf("got\n%q\nwant\n%q", got, tt.text)
			}
			got := AppendSiteJSON(nil, &tt.site)
			if string(got) != tt.json+"\n" || !json.Valid(got) {
				t.Errorf("got\n%s\nwant\n%s", got, tt.json)
			}
		})
	}
}

func TestDefinitionJSON(t *testing.T) {
	d := Definition{Group: "g", Event: "e", Kind: "p", Place: "libc:f", Text: `p:g/e libc:f s=\"x"`, Disabled: true}
	want := `{"type":"definition","group":"g","event":"e","kind":"p","place":"libc:f","definition":"p:g/e libc:f s=\\\"x\"","disabled":true}` + "\n"
	if got := string(AppendDefinitionJSON(nil, &d)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
