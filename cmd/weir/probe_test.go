package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/status"
)

// A probe tells three things apart: ready, running and not ready, and not there.
func TestProbe(t *testing.T) {
	t.Parallel()
	dir, addr := fixtureDir(t), broker(t)
	publishLog(t, dir, addr, "ticks", 1)
	l := startListening(t, dir, "run", runArgs(addr, "ticks", "ticks-1", "--epoch", "50ms")...)
	l.caughtUp(t, 23)
	must(t, dir, "probe", "--url", l.url)
	if doc := parse(t, must(t, dir, "probe", "--url", l.url, "--json")); doc["ready"] != true || doc["run"] != "ticks-1" {
		t.Errorf("%v", doc)
	}
	by := startListening(t, dir, "standby", runArgs(addr, "ticks", "ticks-1", "--standby")...)
	by.await(t, "standing by", func() bool { return by.report(t).Runs[0].Wait == "LEASE" })
	must(t, dir, "probe", "--url", by.url)

	refused(t, dir, 2, []string{"--url is missing"}, "probe")
	blocked := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		json.NewEncoder(w).Encode(status.Report{Format: status.Format, Run: "ticks-1", Live: true,
			Runs: []status.Snapshot{{Run: "ticks-1", Phase: status.PhaseRecoveryBlocked, Cause: &status.Cause{Code: codes.OffsetLost.Name}}}})
	}))
	t.Cleanup(blocked.Close)
	refused(t, dir, 1, []string{"NOT_READY", "ticks-1: RECOVERY_BLOCKED: OFFSET_LOST"}, "probe", "--url", blocked.URL)
	refused(t, dir, 5, []string{"PROCESS_UNREACHABLE"}, "probe", "--url", "http://127.0.0.1:1")
	for _, d := range []*listener{by, l} {
		if err := d.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		d.end(t)
	}
}

// What the manifests of deploy/kubernetes rely on: over TLS with tokens, the node asks /livez without a token and without knowing the certificate,
// `weir probe` asks with both, and Prometheus asks a pod by its address.
func TestProbesOfAPod(t *testing.T) {
	t.Parallel()
	dir, addr := fixtureDir(t), broker(t)
	publishLog(t, dir, addr, "ticks", 1)
	const token = "probe-0123456789abcdef0123456789"
	write(t, dir, "tokens", "prometheus other-0123456789abcdef0123456789\nprobe "+token+"\n")
	write(t, dir, "token", token+"\n")
	authority := podCertificate(t, dir)
	l := startListening(t, dir, "run", runArgs(addr, "ticks", "ticks-1", "--epoch", "50ms", "--tokens", "tokens", "--listen-cert", "tls.crt", "--listen-key", "tls.key", "--host", "10.0.0.1")...)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(l.url, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	probe := []string{"probe", "--url", "https://localhost:" + port, "--url-ca", "tls.crt"}
	l.await(t, "being ready", func() bool { return weir(t, dir, "", append(probe, "--token", "file:token")...).code == 0 })
	refused(t, dir, 3, []string{"ACCESS_DENIED", "--token"}, probe...)
	refused(t, dir, 5, []string{"PROCESS_UNREACHABLE", "certificate"}, "probe", "--url", "https://localhost:"+port)

	get := func(path, host, bearer string, client *tls.Config) int {
		t.Helper()
		req, err := http.NewRequest(http.MethodGet, "https://127.0.0.1:"+port+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if req.Host = host; bearer != "" {
			req.Header.Set("Authorization", "Bearer "+bearer)
		}
		transport := &http.Transport{TLSClientConfig: client}
		defer transport.CloseIdleConnections()
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	node, prometheus := &tls.Config{InsecureSkipVerify: true}, &tls.Config{RootCAs: authority, ServerName: "weir.weir.svc"}
	for _, c := range []struct {
		who, path, host, token string
		client                 *tls.Config
		want                   int
	}{
		{"the node", "/livez", "localhost", "", node, 200},
		{"the node, for more", "/readyz", "localhost", "", node, 401},
		{"the node, by an address that nobody has named", "/livez", "10.0.0.2:8787", "", node, 403},
		{"Prometheus", "/metrics", "10.0.0.1:8787", token, prometheus, 200},
		{"Prometheus without a token", "/metrics", "10.0.0.1:8787", "", prometheus, 401},
	} {
		if got := get(c.path, c.host, c.token, c.client); got != c.want {
			t.Errorf("%s: %s is answered by %d, want %d", c.who, c.path, got, c.want)
		}
	}
	if err := l.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	l.end(t)
}

// podCertificate writes tls.crt and tls.key for the names that deploy/README.md asks for. The certificate is its own authority.
func podCertificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost", "weir.weir.svc"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	write(t, dir, "tls.crt", string(text))
	write(t, dir, "tls.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return pool
}
