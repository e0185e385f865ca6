//go:build unix

package kafkaclient_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/kafkaclient"
	"github.com/weirstream/weir/internal/kafkatest"
	"github.com/weirstream/weir/secret"
)

func TestMain(m *testing.M) { os.Exit(kafkatest.Run(m)) }

func login(m kafkaclient.Mechanism, password string, ca []byte) kafkaclient.Security {
	return kafkaclient.Security{TLS: true, CA: ca, Mechanism: m, User: kafkatest.User, Password: secret.New(password)}
}

// stranger is the certificate of an authority that no broker knows.
func stranger(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(9), Subject: pkix.Name{CommonName: "stranger"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// find asks a broker for a topic that is not there: TOPIC_MISSING means that the connection is good. It logs everything there is to log.
// A broker that is there has all the time that it takes; one that cannot be reached is given up after as long as by default.
func find(t *testing.T, addr string, s kafkaclient.Security, reached bool) error {
	t.Helper()
	var log bytes.Buffer
	handler := slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug - 8})
	defer func() {
		for _, password := range []string{"canary", kafkatest.PlainPassword, kafkatest.ScramPassword} {
			if strings.Contains(log.String(), password) {
				t.Errorf("the log shows a password: %s", log.String())
			}
		}
	}()
	cfg, err := kafkaclient.Config{Brokers: []string{addr}, Topic: "absent", Security: s, Logger: slog.New(handler)}.WithDefaults()
	if reached {
		cfg.StartTimeout = 5 * time.Minute
	}
	if err != nil {
		t.Fatal(err)
	}
	session, err := cfg.Open()
	if err != nil {
		return err
	}
	defer session.Close()
	_, err = session.Find(t.Context())
	session.Close() // nothing is logged any more
	if !strings.Contains(log.String(), addr[strings.Index(addr, ":")+1:]) {
		t.Errorf("logged nothing of %s: %s", addr, log.String())
	}
	return err
}

// Every way to connect right is taken, and every way to get it wrong ends by itself with words of its own and no password in them.
func TestSecurity(t *testing.T) {
	t.Parallel()
	b := kafkatest.Shared(t)
	own := kafkatest.Start(t, kafkatest.Config{Secure: true, Settings: map[string]string{"sasl.enabled.mechanisms": "PLAIN"}})
	wrongName := kafkaclient.Security{TLS: true, CA: b.CA, ServerName: "broker.example"}
	tests := []struct {
		name string
		addr string
		s    kafkaclient.Security
		code *codes.Code
		says string
	}{
		{"nothing", b.Addr(), kafkaclient.Security{}, codes.TopicMissing, ""},
		{"tls", b.TLSAddr(), kafkaclient.Security{TLS: true, CA: b.CA}, codes.TopicMissing, ""},
		{"plain", b.SASLAddr(), login(kafkaclient.Plain, kafkatest.PlainPassword, b.CA), codes.TopicMissing, ""},
		{"scram 256", b.SASLAddr(), login(kafkaclient.ScramSHA256, kafkatest.ScramPassword, b.CA), codes.TopicMissing, ""},
		{"scram 512", b.SASLAddr(), login(kafkaclient.ScramSHA512, kafkatest.ScramPassword, b.CA), codes.TopicMissing, ""},

		{"plain text to TLS", b.TLSAddr(), kafkaclient.Security{}, codes.BrokerUnreachable, "--tls"},
		{"TLS to plain text", b.Addr(), kafkaclient.Security{TLS: true, CA: b.CA}, codes.BrokerUnreachable, "does not speak TLS"},
		{"wrong authority", b.TLSAddr(), kafkaclient.Security{TLS: true, CA: stranger(t)}, codes.BrokerUnreachable, "not signed by an authority"},
		{"wrong name", b.TLSAddr(), wrongName, codes.BrokerUnreachable, "another name"},
		{"wrong password", b.SASLAddr(), login(kafkaclient.Plain, "canary-wrong-1", b.CA), codes.AccessDenied, "user or password"},
		{"wrong scram password", b.SASLAddr(), login(kafkaclient.ScramSHA256, "canary-wrong-2", b.CA), codes.AccessDenied, "user or password"},
		{"mechanism that is not there", own.SASLAddr(), login(kafkaclient.ScramSHA512, kafkatest.ScramPassword, own.CA), codes.AccessDenied, "does not offer"},
		{"no login", b.SASLAddr(), kafkaclient.Security{TLS: true, CA: b.CA}, codes.BrokerUnreachable, "wants a login"},
		{"login where there is none", b.TLSAddr(), login(kafkaclient.Plain, kafkatest.PlainPassword, b.CA), codes.AccessDenied, "login"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			err := find(t, test.addr, test.s, test.code != codes.BrokerUnreachable)
			t.Logf("%v: %v", time.Since(began), err)
			if !codes.Has(err, test.code) {
				t.Fatalf("got %v, want %s", err, test.code.Name)
			}
			if !strings.Contains(err.Error(), test.says) {
				t.Errorf("%q does not say %q", err, test.says)
			}
			if strings.Contains(err.Error(), "canary") {
				t.Errorf("shows a password: %v", err)
			}
		})
	}
}
