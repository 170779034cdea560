// Recorder_goroutines GOROUTINES FILE [storm] is recorder_calls of goroutines: it prints "ready",
// and from a line on each of them calls hit(N, N * K, GOROUTINE) for N = 1, 2, …. FILE,
// which it maps shared, has how many calls each has begun and how many have returned. With storm it
// gets a signal of the runtime's and starts a process all the time.
package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const factor = 0x9E3779B97F4A7C15

type count struct{ begun, returned, _, _, _, _, _, _ uint64 }

//go:noinline
func hit(n, check, goroutine uint64) uint64 { return n + check ^ goroutine }

func work(c *count, g uint64) {
	for n := uint64(1); ; n++ {
		atomic.StoreUint64(&c.begun, n)
		hit(n, n*factor, g)
		atomic.StoreUint64(&c.returned, n)
		if n%16 == 0 {
			time.Sleep(time.Microsecond)
		}
	}
}

func storm() {
	go func() {
		for {
			_ = exec.Command("true").Run()
		}
	}()
	for {
		_ = syscall.Kill(os.Getpid(), syscall.SIGURG)
		time.Sleep(50 * time.Microsecond)
	}
}

func main() {
	n, _ := strconv.Atoi(os.Args[1])
	f, err := os.OpenFile(os.Args[2], os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		panic(err)
	}
	const most = 64
	if err := f.Truncate(most * int64(unsafe.Sizeof(count{}))); err != nil {
		panic(err)
	}
	b, err := syscall.Mmap(int(f.Fd()), 0, most*int(unsafe.Sizeof(count{})), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	counts := unsafe.Slice((*count)(unsafe.Pointer(&b[0])), most)
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	lines.Scan()
	if len(os.Args) > 3 {
		go storm()
	}
	for g := range n {
		go work(&counts[g], uint64(g))
	}
	lines.Scan()
}
