package metrics

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// What a server takes of its readers: those that are slow, many or send much are cut off,
// and never does the trace wait for one.
const (
	maxReaders  = 16 // at a time; more wait for a place
	headerTime  = 2 * time.Second
	answerTime  = 10 * time.Second
	idleTime    = 2 * time.Minute
	maxHeader   = 16 << 10
	maxAnswers  = 4
	closingTime = time.Second
)

// Server answers GET /metrics.
type Server struct {
	listener net.Listener
	http     *http.Server
	done     chan struct{}
}

// Listen takes an address. Nothing is answered before Serve.
func Listen(addr string) (*Server, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) {
			err = op.Err // the rest repeats the address
		}
		return nil, fmt.Errorf("listen at %s: %w", addr, err)
	}
	return &Server{listener: l, done: make(chan struct{})}, nil
}

// Addr is where the server listens.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Serve begins to answer, until Close.
func (s *Server) Serve(c *Collector) error {
	r := prometheus.NewRegistry()
	if err := r.Register(c); err != nil {
		return err
	}
	metrics := promhttp.HandlerFor(r, promhttp.HandlerOpts{
		EnableOpenMetrics: true, CoalesceGather: true, MaxRequestsInFlight: maxAnswers,
	})
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	s.http = &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: headerTime, ReadTimeout: headerTime, WriteTimeout: answerTime, IdleTimeout: idleTime,
		MaxHeaderBytes: maxHeader,
	}
	go func() {
		defer close(s.done)
		_ = s.http.Serve(&bounded{Listener: s.listener, free: make(chan struct{}, maxReaders)}) // ends by Close
	}()
	return nil
}

// Close ends it: answers that are under way have a second to go out.
func (s *Server) Close() {
	if s.http == nil {
		_ = s.listener.Close()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closingTime)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close()
	}
	<-s.done
}

// bounded is a listener that has so many connections at most.
type bounded struct {
	net.Listener
	free chan struct{}
}

// Accept implements net.Listener.
func (b *bounded) Accept() (net.Conn, error) {
	b.free <- struct{}{}
	c, err := b.Listener.Accept()
	if err != nil {
		<-b.free
		return nil, err
	}
	return &boundedConn{Conn: c, free: b.free}, nil
}

// boundedConn gives its place back when it is closed.
type boundedConn struct {
	net.Conn
	free chan struct{}
	once sync.Once
}

// Close implements net.Conn.
func (c *boundedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { <-c.free })
	return err
}
