// An HTTP server that serves its own clients: several at a time, each with
// requests of its own, while the collector runs and stacks grow.
package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

const clients, requests = 8, 100

type server struct{ served atomic.Int64 }

// ServeHTTP answers with the length of what it has made of the path.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := grow(r.URL.Path, len(r.URL.Path)%7+3)
	s.served.Add(1)
	fmt.Fprintf(w, "%s %s %d", r.Method, r.URL.Path, n)
}

// grow needs more stack with each call.
//
//go:noinline
func grow(path string, depth int) int {
	var room [1024]byte
	copy(room[:], path)
	if depth == 0 {
		return len(strings.Repeat(path, 3)) + int(room[0])
	}
	return grow(path+string(room[:1]), depth-1) + int(room[1])
}

func client(base string, id int) (sum int) {
	c := &http.Client{Transport: &http.Transport{}}
	defer c.CloseIdleConnections()
	for i := range requests {
		method := []string{"GET", "POST", "DELETE"}[i%3]
		req, err := http.NewRequest(method, base+"/client/"+strconv.Itoa(id)+"/item/"+strconv.Itoa(i), nil)
		if err != nil {
			panic(err)
		}
		res, err := c.Do(req)
		if err != nil {
			panic(err)
		}
		b, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || !strings.HasPrefix(string(b), method+" /client/") {
			panic(fmt.Sprint(string(b), err))
		}
		sum += len(b)
	}
	return sum
}

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	s := &server{}
	go http.Serve(l, s)
	var stop atomic.Bool
	go func() {
		for !stop.Load() {
			runtime.GC()
		}
	}()
	in := bufio.NewReader(os.Stdin)
	fmt.Println("ready")
	in.ReadString('\n')
	var wg sync.WaitGroup
	var sum atomic.Int64
	for id := range clients {
		wg.Add(1)
		go func() {
			defer wg.Done()
			sum.Add(int64(client("http://"+l.Addr().String(), id)))
		}()
	}
	wg.Wait()
	stop.Store(true)
	fmt.Println("done", s.served.Load(), sum.Load())
	in.ReadString('\n')
	os.Exit(7)
}
