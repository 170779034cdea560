// Package debuginfod asks servers for the debug files of programs, by build-id. It is the
// client side of debuginfod(8), with the environment variables and the cache folder of its
// library, so that both share what they fetch.
//
// Servers are not trusted: size and time of a download are limited, and a file is kept only
// after the caller has checked it.
package debuginfod

import (
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Config is the configuration from the environment. The zero Config asks no server.
type Config struct {
	// Servers are the URLs in the order in which they are asked.
	Servers []string
	// Dir is the cache folder; "" means none.
	Dir string
	// Timeout is the time in which a server must send another 100 KB.
	Timeout time.Duration
	// MaxTime limits the time of one download.
	MaxTime time.Duration
	// MaxSize limits the size of a file, in bytes.
	MaxSize int64
}

// Limits for which the environment has no value. The library also uses 90 s, but has no limit on
// size or time.
const (
	defaultTimeout = 90 * time.Second
	defaultMaxTime = 30 * time.Minute
	defaultMaxSize = 4 << 30
)

// FromEnv reads DEBUGINFOD_URLS, DEBUGINFOD_CACHE_PATH, DEBUGINFOD_TIMEOUT, DEBUGINFOD_MAXTIME
// (seconds) and DEBUGINFOD_MAXSIZE (bytes), as described in debuginfod_find_debuginfo(3). It
// ignores entries that aren't URLs.
func FromEnv(getenv func(string) string) Config {
	c := Config{Dir: cacheDir(getenv), Timeout: defaultTimeout, MaxTime: defaultMaxTime, MaxSize: defaultMaxSize}
	for _, u := range strings.Fields(getenv("DEBUGINFOD_URLS")) {
		if strings.HasPrefix(u, "http://") || strings.HasPrefix(u, "https://") {
			c.Servers = append(c.Servers, strings.TrimRight(u, "/"))
		}
	}
	number := func(name string) (int64, bool) {
		n, err := strconv.ParseInt(getenv(name), 10, 64)
		return n, err == nil && n > 0
	}
	if n, ok := number("DEBUGINFOD_TIMEOUT"); ok {
		c.Timeout = seconds(n)
	}
	if n, ok := number("DEBUGINFOD_MAXTIME"); ok {
		c.MaxTime = seconds(n)
	}
	if n, ok := number("DEBUGINFOD_MAXSIZE"); ok {
		c.MaxSize = n
	}
	return c
}

func seconds(n int64) time.Duration { return time.Duration(min(n, 1<<30)) * time.Second }

// cacheDir returns the library's folder: DEBUGINFOD_CACHE_PATH, or debuginfod_client in the
// user's cache folder.
func cacheDir(getenv func(string) string) string {
	if dir := getenv("DEBUGINFOD_CACHE_PATH"); dir != "" {
		return dir
	}
	base := getenv("XDG_CACHE_HOME")
	if !filepath.IsAbs(base) {
		home := getenv("HOME")
		if !filepath.IsAbs(home) {
			return ""
		}
		base = filepath.Join(home, ".cache")
	}
	return filepath.Join(base, "debuginfod_client")
}
