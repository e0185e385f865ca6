//go:build unix

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/kafkatest"
)

// secured is a folder with everything that a secure connection needs, and the flags that use it.
type secured struct {
	t      *testing.T
	broker *kafkatest.Broker
	dir    string
}

func newSecured(t *testing.T) *secured {
	t.Helper()
	s := &secured{t: t, broker: kafkatest.Shared(t), dir: fixtureDir(t)}
	write(t, s.dir, "ca.pem", string(s.broker.CA))
	write(t, s.dir, "plain-password", kafkatest.PlainPassword+"\n")
	write(t, s.dir, "scram-password", kafkatest.ScramPassword)
	write(t, s.dir, "wrong-password", wrongPassword)
	must(t, s.dir, "replay", "build", "--snapshot", "snapshot.jsonl", "--flow", "flow.yaml", "--faults", "faults.json", "--out", "arrivals.log")
	return s
}

const wrongPassword = "canary-wrong-5a1f"

// canaries are the passwords, which nothing may show.
var canaries = []string{kafkatest.PlainPassword, kafkatest.ScramPassword, wrongPassword}

func hidden(t *testing.T, what string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		for _, c := range canaries {
			if strings.Contains(text, c) {
				t.Errorf("%s shows the password %s:\n%.2000s", what, c, text)
			}
		}
	}
}

// login are the flags of a login by a password in a file.
func (s *secured) login(mechanism, password string) []string {
	return []string{"--brokers", s.broker.SASLAddr(), "--tls", "--tls-ca", "ca.pem", "--sasl", mechanism, "--sasl-user", kafkatest.User, "--sasl-password", "file:" + password}
}

// stranger writes the certificate of an authority that no broker knows, and its key.
func (s *secured) stranger() {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(9), Subject: pkix.Name{CommonName: "stranger"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		s.t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		s.t.Fatal(err)
	}
	write(s.t, s.dir, "stranger.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	write(s.t, s.dir, "stranger.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})))
}

// Every command that takes --brokers works over TLS and with each login, from publishing to a hand-over, and says no password at any level.
func TestSecureConnections(t *testing.T) {
	t.Parallel()
	s := newSecured(t)
	s.stranger()
	ways := map[string][]string{
		"nothing":        {"--brokers", s.broker.Addr()},
		"tls":            {"--brokers", s.broker.TLSAddr(), "--tls", "--tls-ca", "ca.pem"},
		"certificate":    {"--brokers", s.broker.TLSAddr(), "--tls", "--tls-ca", "ca.pem", "--tls-cert", "stranger.pem", "--tls-key", "stranger.key", "--tls-server-name", "localhost"},
		"plain":          s.login("PLAIN", "plain-password"),
		"scram-sha-256":  s.login("SCRAM-SHA-256", "scram-password"),
		"scram-sha-512":  s.login("scram-sha-512", "scram-password"),
		"by environment": append(s.login("SCRAM-SHA-256", "")[:10], "env:WEIR_TEST_PASSWORD"),
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic := "secure-" + strings.ReplaceAll(name, " ", "-")
			run := func(words string, args ...string) string {
				t.Helper()
				cmd := command(t, s.dir, append(append(args, way...), "--topic", topic, "--verbose")...)
				cmd.Env = append(cmd.Env, "WEIR_TEST_PASSWORD="+kafkatest.ScramPassword)
				out, err := cmd.CombinedOutput()
				hidden(t, strings.Join(args, " "), string(out))
				if err != nil || !strings.Contains(string(out), words) {
					t.Fatalf("weir %s: %v, want %q\n%s", strings.Join(args, " "), err, words, out)
				}
				return string(out)
			}
			store := "sqlite:" + topic + ".db"
			run("arrivals sent", "replay", "publish", "--log", "arrivals.log", "--create-partitions", "4")
			run("mark", "handoff", "mark", "--out", topic+".mark.json", "--json")
			doc := parse(t, lastLine(run("consumed", "run", "flow.yaml", "--run-id", "r", "--group", topic, "--store", store, "--until-n", "23", "--json")))
			if doc["consumed"] != 6.0 {
				t.Errorf("consumed %v", doc["consumed"])
			}
			run("weir-handoff", "handoff", "export", "r", "--store", store, "--json", "--out", topic+".json")
			run("0 failed", "handoff", "verify", topic+".json", "--store", store)
			run("go on with", "batch", "run", "--flow", "flow.yaml", "--snapshot", "snapshot.jsonl", "--hand-over-to", "h", "--store", store)
		})
	}
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for _, l := range lines {
		if strings.HasPrefix(l, "{") {
			return l
		}
	}
	return ""
}

// Every wrong way to connect ends by itself, with a message of its own, the right exit code, and no password.
func TestInsecureConnections(t *testing.T) {
	t.Parallel()
	s := newSecured(t)
	s.stranger()
	write(t, s.dir, "no.pem", "not a certificate")
	open := write(t, s.dir, "open-password", wrongPassword)
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	tls := func(more ...string) []string {
		return append([]string{"--brokers", s.broker.TLSAddr(), "--tls"}, more...)
	}
	plain := []string{"--brokers", s.broker.Addr()}
	tests := []struct {
		name  string
		exit  int
		says  string
		flags []string
	}{
		{"plain text to TLS", codes.ExitUnreachable, "--tls", []string{"--brokers", s.broker.TLSAddr()}},
		{"TLS to plain text", codes.ExitUnreachable, "does not speak TLS", append(plain, "--tls", "--tls-ca", "ca.pem")},
		{"unknown authority", codes.ExitUnreachable, "--tls-ca", tls()},
		{"wrong authority", codes.ExitUnreachable, "not signed by an authority", tls("--tls-ca", "stranger.pem")},
		{"wrong name", codes.ExitUnreachable, "--tls-server-name", tls("--tls-ca", "ca.pem", "--tls-server-name", "broker.example")},
		{"no login", codes.ExitUnreachable, "wants a login (--sasl)", []string{"--brokers", s.broker.SASLAddr(), "--tls", "--tls-ca", "ca.pem"}},
		{"wrong password", codes.ExitConfig, "does not know this user or password (PLAIN)", s.login("PLAIN", "wrong-password")},
		{"wrong scram password", codes.ExitConfig, "does not know this user or password (SCRAM-SHA-512)", s.login("SCRAM-SHA-512", "wrong-password")},
		{"login where there is none", codes.ExitConfig, "takes no login", append(tls("--tls-ca", "ca.pem"), s.login("PLAIN", "plain-password")[5:]...)},

		{"authority is not there", codes.ExitConfig, "--tls-ca", tls("--tls-ca", "absent.pem")},
		{"authority is none", codes.ExitConfig, "holds no certificate", tls("--tls-ca", "no.pem")},
		{"key of another", codes.ExitConfig, "certificate and key", tls("--tls-cert", "ca.pem", "--tls-key", "stranger.key")},
		{"password for all to read", codes.ExitConfig, "chmod 600", s.login("PLAIN", "open-password")},
		{"no such variable", codes.ExitConfig, "WEIR_TEST_ABSENT", append(s.login("PLAIN", "")[:10], "env:WEIR_TEST_ABSENT")},

		{"a password itself", codes.ExitUsage, "never the password", append(s.login("PLAIN", "")[:10], wrongPassword)},
		{"no such mechanism", codes.ExitUsage, "GSSAPI", s.login("GSSAPI", "plain-password")},
		{"PLAIN in the open", codes.ExitUsage, "add --tls", append(plain, "--sasl", "plain", "--sasl-user", "u", "--sasl-password", "file:plain-password")},
		{"no user", codes.ExitUsage, "needs --sasl-user", append(plain, "--sasl", "SCRAM-SHA-256", "--sasl-password", "file:plain-password")},
		{"no mechanism", codes.ExitUsage, "belong to --sasl", append(plain, "--sasl-user", "u")},
		{"half a certificate", codes.ExitUsage, "go together", tls("--tls-cert", "ca.pem")},
		{"authority without TLS", codes.ExitUsage, "belong to --tls", append(plain, "--tls-ca", "ca.pem")},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for _, args := range [][]string{
				{"run", "flow.yaml", "--run-id", "r", "--store", "sqlite:" + filepath.Join(t.TempDir(), "weir.db"), "--topic", "absent", "--json", "--verbose"},
				{"replay", "publish", "--log", "arrivals.log", "--topic", "absent"},
			} {
				began := time.Now()
				r := refused(t, s.dir, test.exit, []string{test.says}, append(args, test.flags...)...)
				hidden(t, args[0], r.stdout, r.stderr)
				t.Logf("%s took %v", args[0], time.Since(began))
			}
		})
	}
}

// How to connect is nothing without whom to connect to.
func TestConnectionFlagsWithoutBrokers(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	for _, args := range [][]string{
		{"run", "flow.yaml", "--log", "x.log", "--run-id", "r", "--store", "sqlite:x.db"},
		{"handoff", "export", "r", "--store", "sqlite:x.db"},
		{"batch", "run", "--flow", "flow.yaml", "--snapshot", "snapshot.jsonl"},
	} {
		r := refused(t, dir, codes.ExitUsage, []string{"--"}, append(args, "--sasl-password", "file:p", "--tls")...)
		if !strings.Contains(r.stderr, "--brokers") && !strings.Contains(r.stderr, "--hand-over-to") {
			t.Errorf("weir %s: %s", args[0], r.stderr)
		}
	}
}

// Whatever takes --brokers takes the rest.
func TestConnectionFlagsAreEverywhere(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"run", "replay publish", "handoff mark", "handoff export", "handoff verify", "batch run", "drill"} {
		help := must(t, t.TempDir(), append(strings.Fields(name), "--help")...)
		for _, flag := range []string{"brokers", "tls", "tls-ca", "tls-cert", "tls-key", "tls-server-name", "sasl", "sasl-user", "sasl-password"} {
			if !strings.Contains(help, "--"+flag+" ") {
				t.Errorf("weir %s lacks --%s", name, flag)
			}
		}
	}
}

// The commands of docs/kafka.md, on a broker in the place of the one that they name.
func TestKafkaDocument(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Shared(t)
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "kafka.md"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, dir, "ca.pem", string(broker.CA))
	write(t, dir, "kafka-password", kafkatest.ScramPassword)
	there := strings.NewReplacer("kafka.example:9093", broker.TLSAddr(), "kafka.example:9094", broker.SASLAddr(), "\nweir ", "\nKAFKA_PASSWORD="+kafkatest.ScramPassword+" weir ")
	ran := 0
	for _, b := range blocks(string(text)) {
		switch {
		case b.saveAs != "":
			write(t, dir, b.saveAs, b.text)
		case b.lang == "sh":
			ran += runBlock(t, dir, there.Replace("\n"+b.text))
		}
	}
	if ran != 6 {
		t.Errorf("%d commands were found", ran)
	}
}

// The drill on PostgreSQL and Apache Kafka, over TLS with a login: every check holds and every fault happens.
func TestDrillOverApache(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Shared(t)
	ca := write(t, t.TempDir(), "ca.pem", string(broker.CA))
	args := []string{"--grace", "10s", "--parallel", "4", "--brokers", broker.SASLAddr(), "--tls", "--tls-ca", ca,
		"--sasl", "SCRAM-SHA-512", "--sasl-user", kafkatest.User, "--sasl-password", "env:WEIR_TEST_PASSWORD"}
	least := 36.0
	if testing.Short() {
		args, least = append(args, "--only", "owners,effect"), 10
	}
	code, report := runDrill(t, chaosStores["postgres"](t), []string{"WEIR_TEST_PASSWORD=" + kafkatest.ScramPassword}, args...)
	if code != 0 || len(failed(report)) > 0 {
		t.Errorf("exit %d, failed:\n%s", code, strings.Join(failed(report), "\n"))
	}
	if planned, fired := report["faults_planned"].(float64), report["faults_fired"].(float64); planned < 1 || fired != planned {
		t.Errorf("%v of %v faults happened", fired, planned)
	}
	if n := report["passed"].(float64); n < least {
		t.Errorf("%v checks", n)
	}
	t.Logf("%v checks, %v faults, %v ms, %v", report["passed"], report["faults_fired"], report["took_ms"], report["figures"])
}

// Three daemons share a run out over Apache Kafka, which assigns the partitions, over TLS with a login.
func TestApartDrillOverTLS(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Shared(t)
	ca := write(t, t.TempDir(), "ca.pem", string(broker.CA))
	password := write(t, t.TempDir(), "password", kafkatest.ScramPassword)
	drillApart(t, chaosStores["postgres"](t), 2, "--records", "5000", "--faults", "2", "--moves", "2", "--brokers", broker.SASLAddr(), "--tls", "--tls-ca", ca,
		"--sasl", "SCRAM-SHA-256", "--sasl-user", kafkatest.User, "--sasl-password", "file:"+password)
}
