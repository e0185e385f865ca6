package main

import (
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/weirstream/weir/internal/kinesistest"
)

// stalling stands before an emulator and leaves the n-th call and all later ones without an answer. stalled is closed at the first of them.
func stalling(t *testing.T, endpoint string, n int64) (addr string, stalled chan struct{}) {
	t.Helper()
	to, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	stalled = make(chan struct{})
	var calls atomic.Int64
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch now := calls.Add(1); {
		case now == n:
			close(stalled)
			fallthrough
		case now > n:
			<-req.Context().Done()
		default:
			proxy.ServeHTTP(w, req)
		}
	})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	return "http://" + l.Addr().String(), stalled
}

// Being told to stop is how a daemon ends, also while it starts and Kinesis does not answer: at whichever call, the exit code is 0, and nothing is
// begun that the next start could not go on with.
func TestStopWhileKinesisStarts(t *testing.T) {
	t.Parallel()
	r := newRiver(t, 2)
	r.publish(1)
	for n := int64(1); n <= 12; n++ {
		addr, stalled := stalling(t, r.Endpoint(), n)
		args := []string{"run", "flow.yaml", "--run-id", "run", "--store", "sqlite:run.db", "--epoch", "1h", "--kinesis", r.name, "--region", kinesistest.Region, "--endpoint", addr}
		p := startLogged(t, r.dir, "start"+strconv.FormatInt(n, 10), nil, args...)
		p.await(t, "a call that is not answered", func() bool {
			select {
			case <-stalled:
				return true
			default:
				return false
			}
		})
		if err := p.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if code := p.end(t); code != 0 || !strings.Contains(p.said(t), "weir: stopped") {
			t.Errorf("stopped at call %d: exit %d\n%s", n, code, p.said(t))
		}
	}
	p := start(t, r.dir, r.args("run")...)
	until(t, "everything is committed", []*process{p}, r.consumed("run"))
	r.ends(p)
}

// The same with a broker that does not answer, for a run as one and one by partitions. With an end of its own a run that is stopped has not come to it.
func TestStopWhileABrokerDoesNotAnswer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	dir, asked := fixtureDir(t), make(chan struct{}, 64)
	go func() {
		for {
			if _, err := l.Accept(); err != nil {
				return
			}
			asked <- struct{}{}
		}
	}()
	for name, c := range map[string]struct {
		more []string
		want int
	}{"one": {nil, 0}, "apart": {[]string{"--scope", "partition", "--group", "g"}, 0}, "ends": {[]string{"--once-n", "5"}, 130}} {
		for len(asked) > 0 {
			<-asked
		}
		p := startLogged(t, dir, name, nil, append([]string{"run", "flow.yaml", "--run-id", "run", "--store", "sqlite:" + name + ".db", "--brokers", l.Addr().String(), "--topic", "t"}, c.more...)...)
		p.await(t, "a connection", func() bool { return len(asked) > 0 })
		if err := p.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if code := p.end(t); code != c.want {
			t.Errorf("%s: exit %d, want %d\n%s", name, code, c.want, p.said(t))
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "one.db")); err != nil {
		t.Error(err)
	}
}
