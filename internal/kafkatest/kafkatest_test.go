//go:build unix

package kafkatest_test

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/weirstream/weir/internal/kafkatest"
)

func TestMain(m *testing.M) { os.Exit(kafkatest.Run(m)) }

// Every listener of a secure broker answers its own kind of client, and what one writes the others read.
func TestListeners(t *testing.T) {
	t.Parallel()
	b := kafkatest.Shared(t)
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b.CA) {
		t.Fatalf("the authority is no certificate: %q", b.CA)
	}
	encrypted := kgo.DialTLSConfig(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})
	clients := map[string][]kgo.Opt{
		"plaintext":     {kgo.SeedBrokers(b.Addr())},
		"tls":           {kgo.SeedBrokers(b.TLSAddr()), encrypted},
		"plain":         {kgo.SeedBrokers(b.SASLAddr()), encrypted, kgo.SASL(plain.Auth{User: kafkatest.User, Pass: kafkatest.PlainPassword}.AsMechanism())},
		"scram-sha-256": {kgo.SeedBrokers(b.SASLAddr()), encrypted, kgo.SASL(scram.Auth{User: kafkatest.User, Pass: kafkatest.ScramPassword}.AsSha256Mechanism())},
		"scram-sha-512": {kgo.SeedBrokers(b.SASLAddr()), encrypted, kgo.SASL(scram.Auth{User: kafkatest.User, Pass: kafkatest.ScramPassword}.AsSha512Mechanism())},
	}
	for name, opts := range clients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, err := kgo.NewClient(append(opts, kgo.DefaultProduceTopic(name))...)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			if _, err := kadm.NewClient(client).CreateTopic(t.Context(), 1, 1, nil, name); err != nil {
				t.Fatal(err)
			}
			r, err := client.ProduceSync(t.Context(), kgo.StringRecord("v")).First()
			if err != nil || r.Offset != 0 {
				t.Fatalf("offset %d: %v", r.Offset, err)
			}
		})
	}
}

// A broker that was killed comes back with what it had.
func TestKilledAndStartedAgain(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t, kafkatest.Config{})
	client, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()), kgo.DefaultProduceTopic("kept"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := kadm.NewClient(client).CreateTopic(t.Context(), 1, 1, nil, "kept"); err != nil {
		t.Fatal(err)
	}
	for want := range int64(2) {
		r, err := client.ProduceSync(t.Context(), kgo.StringRecord("v")).First()
		if err != nil || r.Offset != want {
			t.Fatalf("offset %d instead of %d: %v", r.Offset, want, err)
		}
		if want == 0 {
			b.Kill()
			b.Restart(t)
		}
	}
}

// The folder of the jars is named after the version that is fetched.
func TestVersion(t *testing.T) {
	t.Parallel()
	pom, err := os.ReadFile("pom.xml")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(pom), "<version>"+kafkatest.Version+"</version>") {
		t.Errorf("pom.xml does not name version %s", kafkatest.Version)
	}
}
