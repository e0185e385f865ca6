package main

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/internal/kafkaclient"
	"github.com/weirstream/weir/secret"
)

// brokerFlags say which brokers to connect to, and how. Every command that takes --brokers takes all of them.
type brokerFlags struct {
	brokers                   string
	tls                       bool
	ca, cert, key, serverName string
	sasl, user, password      string
}

// addBrokers registers the flags; usage is that of --brokers.
func (o *brokerFlags) addBrokers(cmd *cobra.Command, usage string) {
	f := cmd.Flags()
	f.StringVar(&o.brokers, "brokers", "", usage)
	f.BoolVar(&o.tls, "tls", false, "connect to the brokers over TLS, and verify their certificates")
	f.StringVar(&o.ca, "tls-ca", "", "file with the certificates, in PEM, of the authority that signed the brokers' (default: those that the system trusts)")
	f.StringVar(&o.cert, "tls-cert", "", "file with this client's certificate, in PEM, for brokers that ask for one")
	f.StringVar(&o.key, "tls-key", "", "file with the key of --tls-cert, in PEM; only its owner may read it")
	f.StringVar(&o.serverName, "tls-server-name", "", "name that the brokers' certificates must have (default: the host of the address)")
	f.StringVar(&o.sasl, "sasl", "", "log in by PLAIN (over TLS only), SCRAM-SHA-256 or SCRAM-SHA-512")
	f.StringVar(&o.user, "sasl-user", "", "user of the login")
	f.StringVar(&o.password, "sasl-password", "", "password of the login, as a reference: env:NAME or file:PATH")
}

// named says whether any flag but --brokers is set.
func (o *brokerFlags) named() bool {
	return o.tls || o.ca+o.cert+o.key+o.serverName+o.sasl+o.user+o.password != ""
}

// checkBrokers finds what is wrong on the command line, without a look at files and variables. No message shows what was given as a password.
func (o *brokerFlags) checkBrokers() error {
	switch {
	case o.brokers == "" && o.named():
		return usagef("--tls… and --sasl… say how to connect to --brokers, which is missing")
	case o.brokers == "":
		return nil
	case strings.Contains(o.brokers, "@"):
		return usagef("--brokers cannot hold a user or a password (it is not shown): write HOST:PORT, separated by commas, and log in by --sasl")
	case addresses(o.brokers) == nil:
		return usagef("--brokers %q has an empty address: write HOST:PORT, separated by commas", o.brokers)
	case !o.tls && o.ca+o.cert+o.key+o.serverName != "":
		return usagef("--tls-ca, --tls-cert, --tls-key and --tls-server-name belong to --tls")
	case (o.cert == "") != (o.key == ""):
		return usagef("--tls-cert and --tls-key go together")
	case o.sasl == "" && o.user+o.password != "":
		return usagef("--sasl-user and --sasl-password belong to --sasl: say how to log in, PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512")
	case o.sasl == "":
		return nil
	case !kafkaclient.Known(o.mechanism()):
		return usagef("--sasl must be PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512, not %q", o.sasl)
	case o.mechanism() == kafkaclient.Plain && !o.tls:
		return usagef("--sasl PLAIN sends the password as it is: add --tls, or log in by SCRAM-SHA-512")
	case o.user == "" || o.password == "":
		return usagef("--sasl needs --sasl-user and --sasl-password")
	case !strings.HasPrefix(o.password, "env:") && !strings.HasPrefix(o.password, "file:"):
		return usagef("--sasl-password takes a reference, env:NAME or file:PATH, and never the password: everybody can see a command line")
	}
	return nil
}

func (o *brokerFlags) mechanism() kafkaclient.Mechanism {
	return kafkaclient.Mechanism(strings.ToUpper(o.sasl))
}

// security reads the files and resolves the references that the flags name.
func (o *brokerFlags) security() (kafkaclient.Security, error) {
	s := kafkaclient.Security{TLS: o.tls, ServerName: o.serverName, Mechanism: o.mechanism(), User: o.user}
	var err error
	for _, f := range []struct {
		what, path string
		into       *[]byte
	}{{"--tls-ca", o.ca, &s.CA}, {"--tls-cert", o.cert, &s.Certificate}} {
		if f.path == "" {
			continue
		}
		if *f.into, err = readFile(f.what, f.path, pemLimit); err != nil {
			return s, err
		}
	}
	if o.key != "" {
		key, err := dereference("file:" + o.key)
		if err != nil {
			return s, err
		}
		s.Key = []byte(key)
	}
	if o.password != "" {
		password, err := dereference(o.password)
		if err != nil {
			return s, err
		}
		s.Password = secret.New(password)
	}
	return s, nil
}

// followEvery is how often a run looks whether partitions were added to its topic.
const followEvery = 5 * time.Second

// follow is followEvery, or 0 for a run that is shared out: its group is told of new partitions.
func (o *runOptions) follow() time.Duration {
	if o.scope == scopePartition {
		return 0
	}
	return followEvery
}

// args are the flags again, but for --brokers, for a process of the same working folder and environment. A password stays a reference.
func (o *brokerFlags) args() (args []string) {
	if o.tls {
		args = append(args, "--tls")
	}
	for _, f := range []struct{ name, value string }{
		{"--tls-ca", o.ca}, {"--tls-cert", o.cert}, {"--tls-key", o.key}, {"--tls-server-name", o.serverName},
		{"--sasl", o.sasl}, {"--sasl-user", o.user}, {"--sasl-password", o.password},
	} {
		if f.value != "" {
			args = append(args, f.name, f.value)
		}
	}
	return args
}

// pemLimit is more than the authorities of a system take.
const pemLimit = 4 << 20
