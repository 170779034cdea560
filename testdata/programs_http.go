// An HTTP server that counts what it answers. It prints "ready ADDRESS" and,
// when its input ends, "done COUNT".
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
)

var count atomic.Int64

//go:noinline
func answer(path string) string {
	count.Add(1)
	return fmt.Sprintf("%s has %d letters", path, len(path))
}

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() {
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, answer(r.URL.Path))
		}))
	}()
	fmt.Println("ready", l.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	fmt.Println("done", count.Load())
}
