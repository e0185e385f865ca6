package kafkaclient

import (
	"crypto/tls"
	"crypto/x509"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/secret"
)

// Mechanism is how a client logs in.
type Mechanism string

// The mechanisms. Plain sends the password as it is, and is refused without TLS.
const (
	NoLogin     Mechanism = ""
	Plain       Mechanism = "PLAIN"
	ScramSHA256 Mechanism = "SCRAM-SHA-256"
	ScramSHA512 Mechanism = "SCRAM-SHA-512"
)

// Known says whether a mechanism is one to log in by.
func Known(m Mechanism) bool { return m == Plain || m == ScramSHA256 || m == ScramSHA512 }

// Security says how a client connects: without encryption and login by default. There is no way to turn the verification of certificates off.
type Security struct {
	// TLS encrypts, at TLS 1.2 or later, and verifies the broker's certificate against CA (certificates in PEM; the system's by default) and
	// ServerName (the host of the address by default). Certificate and Key, in PEM, are for a broker that asks clients for one.
	TLS              bool
	CA               []byte
	ServerName       string
	Certificate, Key []byte
	// Mechanism, User and Password are the login.
	Mechanism Mechanism
	User      string
	Password  secret.Text
}

// options are those of a client that connects so. Errors: CONFIG_INVALID, with everything that is wrong.
func (s Security) options() ([]kgo.Opt, error) {
	var wrong []string
	check := func(bad bool, what string) {
		if bad {
			wrong = append(wrong, what)
		}
	}
	check(!s.TLS && (len(s.CA) > 0 || len(s.Certificate) > 0 || len(s.Key) > 0 || s.ServerName != ""), "certificates or a server name are given, but TLS is off")
	check((len(s.Certificate) > 0) != (len(s.Key) > 0), "a client's certificate and its key go together")
	check(s.Mechanism == Plain && !s.TLS, "PLAIN sends the password as it is, and is used over TLS only")
	check(s.Mechanism != NoLogin && (s.User == "" || s.Password.Empty()), "a login needs a user and a password")
	check(s.Mechanism == NoLogin && (s.User != "" || !s.Password.Empty()), "a user or a password is given without a mechanism (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512)")
	var opts []kgo.Opt
	if s.TLS {
		cfg, bad := s.tls()
		wrong = append(wrong, bad...)
		opts = append(opts, kgo.DialTLSConfig(cfg))
	}
	if s.Mechanism != NoLogin {
		mechanism := s.login()
		check(mechanism == nil, "the mechanism is not one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512")
		opts = append(opts, kgo.SASL(mechanism))
	}
	if len(wrong) > 0 {
		return nil, codes.New(codes.ConfigInvalid, "the connection to the brokers: %s", strings.Join(wrong, "; "))
	}
	return opts, nil
}

func (s Security) tls() (cfg *tls.Config, wrong []string) {
	cfg = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: s.ServerName}
	if len(s.CA) > 0 {
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(s.CA) {
			wrong = append(wrong, "the authority's file holds no certificate in PEM")
		}
	}
	if len(s.Certificate) > 0 && len(s.Key) > 0 {
		pair, err := tls.X509KeyPair(s.Certificate, s.Key)
		if err != nil {
			// Its error speaks of the two files and never shows what is in them.
			wrong = append(wrong, "the client's certificate and key: "+err.Error())
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, wrong
}

func (s Security) login() sasl.Mechanism {
	switch s.Mechanism {
	case Plain:
		return plain.Auth{User: s.User, Pass: s.Password.Reveal()}.AsMechanism()
	case ScramSHA256:
		return scram.Auth{User: s.User, Pass: s.Password.Reveal()}.AsSha256Mechanism()
	case ScramSHA512:
		return scram.Auth{User: s.User, Pass: s.Password.Reveal()}.AsSha512Mechanism()
	}
	return nil
}
