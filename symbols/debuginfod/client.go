package debuginfod

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// ErrNotFound: no server has the file.
var ErrNotFound = errors.New("no debuginfod server has it")

// Times for a server to show that it is there. A first question may make it
// unpack a package, for which Config.Timeout leaves room.
const (
	dialTime     = 3 * time.Second
	maxRedirects = 4
	pace         = 100 << 10 // bytes that must come within Config.Timeout
)

// Client asks the servers in its Config. It is safe for concurrent use. If a server can't be
// reached, a Client doesn't ask it again.
type Client struct {
	conf Config
	logf func(format string, args ...any)
	http http.Client

	mu   sync.Mutex
	dead map[string]error // by server
}

// New makes a Client. logf gets a line on each request and on the reason of each failure; nil
// drops them.
func New(c Config, logf func(format string, args ...any)) *Client {
	if logf == nil {
		logf = func(string, ...any) {}
	}
	return &Client{conf: c, logf: logf, dead: map[string]error{}, http: http.Client{
		Transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DialContext:            (&net.Dialer{Timeout: dialTime}).DialContext,
			TLSHandshakeTimeout:    2 * dialTime,
			ResponseHeaderTimeout:  c.Timeout,
			MaxResponseHeaderBytes: 64 << 10,
			DisableCompression:     true,
		},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects {
				return errors.New("it redirects too often")
			}
			if s := r.URL.Scheme; s != "https" && (s != "http" || via[0].URL.Scheme == "https") {
				return errors.New("it redirects to an unsafe place")
			}
			return nil
		},
	}}
}

// Config returns the configuration of the Client.
func (c *Client) Config() *Config { return &c.conf }

// Fetch finds the debug file of a build-id, in lower-case hexadecimal: in the cache, or at the
// first server that has it. check examines a file before it is kept, and a file from the cache.
// A file that it rejects counts as missing. The path is in the cache and stays valid.
//
// The error wraps ErrNotFound if no server has the file. Other errors come from the last server,
// or from writing to the cache. After an error, nothing remains but a note that no server has the
// file.
func (c *Client) Fetch(ctx context.Context, id string, check func(path string) error) (string, error) {
	if !validID(id) {
		return "", fmt.Errorf("build-id %q: %w", id, ErrNotFound)
	}
	if path, ok := c.conf.Cached(id); ok && check(path) == nil {
		return path, nil
	}
	if c.conf.Dir == "" {
		return "", errors.New("there is no cache folder for debug files: set XDG_CACHE_HOME")
	}
	if c.conf.missing(id) {
		return "", fmt.Errorf("build-id %s: %w (asked a few minutes ago)", id, ErrNotFound)
	}
	var failed error
	for _, server := range c.conf.Servers {
		err := c.from(ctx, server, id, check)
		if err == nil {
			return c.conf.path(id), nil
		}
		c.logf("debuginfod: %s: %v", server, err)
		if ctx.Err() != nil {
			return "", fmt.Errorf("fetch debug information: %w", context.Cause(ctx))
		}
		if !errors.Is(err, ErrNotFound) {
			failed = err
		}
	}
	if failed != nil {
		return "", fmt.Errorf("fetch debug information: %w", failed)
	}
	c.conf.noteMissing(id)
	return "", fmt.Errorf("build-id %s: %w", id, ErrNotFound)
}

// from fetches the file from one server.
func (c *Client) from(ctx context.Context, server, id string, check func(string) error) error {
	c.mu.Lock()
	err := c.dead[server]
	c.mu.Unlock()
	if err != nil {
		return err
	}
	ctx, end := context.WithTimeoutCause(ctx, c.conf.MaxTime, fmt.Errorf("it took longer than %v", c.conf.MaxTime))
	defer end()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/buildid/"+id+"/debuginfo", nil)
	if err != nil {
		return err
	}
	r.Header.Set("User-Agent", "kprobe")
	c.logf("debuginfod: asking %s for build-id %s", server, id)
	resp, err := c.http.Do(r)
	if err != nil {
		if ctx.Err() == nil {
			c.mu.Lock()
			c.dead[server] = err
			c.mu.Unlock()
		}
		return err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return ErrNotFound
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("it answered %s", strings.ToValidUTF8(resp.Status, "?"))
	case resp.ContentLength > c.conf.MaxSize:
		return fmt.Errorf("the file has %d bytes, more than %d: set DEBUGINFOD_MAXSIZE to allow that", resp.ContentLength, c.conf.MaxSize)
	}
	return c.keep(ctx, cancel, resp.Body, id, check)
}

// keep writes what a server sends to a file in the cache folder, and moves it into place once
// it is complete and correct.
func (c *Client) keep(ctx context.Context, cancel context.CancelCauseFunc, body io.Reader, id string, check func(string) error) error {
	f, err := c.conf.scratch(id)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // does nothing if the file was moved
	defer f.Close()
	slow := time.AfterFunc(c.conf.Timeout, func() {
		cancel(fmt.Errorf("it sent less than %d KB in %v", pace>>10, c.conf.Timeout))
	})
	defer slow.Stop()
	var head [4]byte
	if _, err := io.ReadFull(body, head[:]); ctx.Err() != nil {
		return context.Cause(ctx)
	} else if err != nil || !bytes.Equal(head[:], []byte("\x7fELF")) {
		return errors.New("it sent something that is not an ELF file")
	}
	if _, err := f.Write(head[:]); err != nil {
		return err
	}
	for size := int64(len(head)); ; {
		n, err := io.CopyN(f, body, min(pace, c.conf.MaxSize+1-size))
		size += n
		switch {
		case size > c.conf.MaxSize:
			return fmt.Errorf("it sends more than %d bytes: set DEBUGINFOD_MAXSIZE to allow that", c.conf.MaxSize)
		case errors.Is(err, io.EOF):
			if err := f.Close(); err != nil {
				return fmt.Errorf("write to the cache: %w", err)
			}
			if err := check(f.Name()); err != nil {
				return err
			}
			return os.Rename(f.Name(), c.conf.path(id))
		case err != nil && ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		}
		slow.Reset(c.conf.Timeout)
	}
}
