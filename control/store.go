package control

import (
	"net/url"
	"path/filepath"
	"strings"

	"github.com/weirstream/weir/codes"
)

// StoreKind is the part of a store string before its colon.
type StoreKind string

// The kinds of store.
const (
	// StoreSQLite is one file on this machine, embedded: nothing to install.
	StoreSQLite StoreKind = "sqlite"
	// StorePostgres is a PostgreSQL database, shared by several machines.
	StorePostgres StoreKind = "postgres"
)

// Store says where the control plane keeps what it knows. Printing it never shows a password, whatever the verb.
type Store struct {
	Kind StoreKind
	// Path of the file, for StoreSQLite; cleaned, as relative as it was given.
	Path string
	// shown is what Redacted returns.
	shown string
}

// ParseStore reads a store string: sqlite:PATH or postgres://…. It fails with StoreInvalid. No error shows a password, and the Store holds none:
// whoever connects to PostgreSQL keeps the string itself.
func ParseStore(s string) (Store, error) {
	kind, rest, ok := strings.Cut(s, ":")
	switch {
	case s == "":
		return Store{}, codes.New(codes.StoreInvalid, "no store is given: write sqlite:PATH, such as sqlite:weir.db")
	case ok && kind == "sqlite":
		return parseSQLite(rest)
	case ok && (kind == "postgres" || kind == "postgresql"):
		return Store{Kind: StorePostgres, shown: redactURL(s)}, nil
	case ok && len(kind) <= 20 && !strings.ContainsAny(kind, "@/= "):
		// Only the kind is shown: what follows may be a secret under any syntax.
		return Store{}, codes.New(codes.StoreInvalid, "stores of the kind %q are not known: write sqlite:PATH, such as sqlite:weir.db, or postgres://user@host/database", kind)
	}
	return Store{}, codes.New(codes.StoreInvalid, "the store string has no kind before a colon: write sqlite:PATH, such as sqlite:weir.db")
}

func parseSQLite(path string) (Store, error) {
	bad, shown := "", path
	if mayHoldSecret(path) {
		shown = "***"
	}
	switch {
	case path == "":
		bad = "the path is missing"
	case path == ":memory:":
		bad = "a journal in memory would not survive a restart; name a file"
	case strings.HasPrefix(path, "//") || strings.Contains(path, "://"):
		bad = "a path follows the colon, not a URL"
	case strings.ContainsAny(path, "?\x00"):
		bad = "the path has a '?' or a NUL; there are no options"
	case mayHoldSecret(path):
		bad = "that looks like a user with a password, and there are none; name a file without ':' before '@' and without 'password='"
	case strings.HasSuffix(path, "/") || strings.HasSuffix(path, string(filepath.Separator)):
		bad = "the path is a folder; name a file in it"
	default:
		path = filepath.Clean(path)
		return Store{Kind: StoreSQLite, Path: path, shown: "sqlite:" + path}, nil
	}
	return Store{}, codes.New(codes.StoreInvalid, "store %q: %s: write sqlite:PATH, such as sqlite:weir.db", "sqlite:"+shown, bad)
}

// mayHoldSecret says whether the path is rather a URL or a connection string with an "sqlite:" before it. It is not shown then, and no
// store has it, so that no later error shows it either.
func mayHoldSecret(path string) bool {
	at := strings.LastIndex(path, "@")
	return strings.HasPrefix(path, "//") || strings.Contains(path, "://") || strings.Contains(path, "?") ||
		strings.Contains(path[:max(at, 0)], ":") || strings.Contains(strings.ToLower(path), "password=")
}

// Redacted is the store string without its secrets, fit for logs and messages.
func (s Store) Redacted() string { return s.shown }

// String is Redacted.
func (s Store) String() string { return s.shown }

// GoString keeps %#v from showing more than String.
func (s Store) GoString() string { return s.shown }

// MarshalText keeps JSON and structured logs from showing more than String.
func (s Store) MarshalText() ([]byte, error) { return []byte(s.shown), nil }

// redactURL shows scheme, user, host, path and harmless parameters of a URL. What cannot be parsed is not shown at all.
func redactURL(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.Opaque != "" {
		kind, _, _ := strings.Cut(s, ":")
		return kind + "://***"
	}
	out := u.Scheme + "://"
	if u.User != nil {
		out += url.User(u.User.Username()).String()
		if _, has := u.User.Password(); has {
			out += ":***"
		}
		out += "@"
	}
	out += u.Host + u.EscapedPath()
	q := u.Query()
	for name := range q {
		if !harmless[name] {
			q[name] = []string{"***"}
		}
	}
	if len(q) > 0 {
		out += "?" + strings.ReplaceAll(q.Encode(), "%2A%2A%2A", "***")
	}
	return out
}

// harmless are the connection parameters that are shown; any other may carry a secret.
var harmless = map[string]bool{
	"application_name": true, "connect_timeout": true, "dbname": true, "host": true, "hostaddr": true, "port": true,
	"search_path": true, "sslmode": true, "target_session_attrs": true, "user": true,
}
