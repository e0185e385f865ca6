package server

import (
	"bufio"
	"crypto/sha256"
	"crypto/subtle"
	"os"
	"strings"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/secretfile"
)

// minToken is the shortest token, in bytes: 22 characters of base64 or 32 of hex hold 128 bits.
const minToken = 22

// Tokens are the bearer tokens of principals. Only their hashes are kept, so that none can be printed.
type Tokens struct{ list []principal }

type principal struct {
	name string
	hash [sha256.Size]byte
}

// ReadTokens reads a token file: a line for each principal, its name and its token. Empty lines and lines that start with # are left out.
// The file must not be readable by others. No error shows a token.
func ReadTokens(path string) (*Tokens, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, codes.New(codes.FileMissing, "the token file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, codes.New(codes.FileMissing, "the token file: %w", err)
	}
	if secretfile.Open(info) {
		return nil, codes.New(codes.ConfigInvalid, "the token file %s can be read by others (mode %04o); chmod 600 it", path, info.Mode().Perm())
	}
	t := &Tokens{}
	seen := map[string]bool{}
	scan := bufio.NewScanner(f)
	for line := 1; scan.Scan(); line++ {
		text := strings.TrimSpace(scan.Text())
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		name, token, ok := strings.Cut(text, " ")
		token = strings.TrimSpace(token)
		switch {
		case !ok || token == "" || strings.ContainsAny(token, " \t"):
			return nil, codes.New(codes.ConfigInvalid, "%s:%d: a line is a principal's name, a space and a token", path, line)
		case len(token) < minToken:
			return nil, codes.New(codes.ConfigInvalid, "%s:%d: the token of %q is too short to be safe: at least %d characters", path, line, name, minToken)
		case seen[name]:
			return nil, codes.New(codes.ConfigInvalid, "%s:%d: principal %q stands twice", path, line, name)
		}
		seen[name] = true
		t.list = append(t.list, principal{name, sha256.Sum256([]byte(token))})
	}
	if err := scan.Err(); err != nil {
		return nil, codes.New(codes.FileMissing, "the token file: %w", err)
	}
	if len(t.list) == 0 {
		return nil, codes.New(codes.ConfigInvalid, "the token file %s has no principal", path)
	}
	return t, nil
}

// principal finds whose token it is, in a time that does not depend on which.
func (t *Tokens) principal(token string) (name string, ok bool) {
	hash := sha256.Sum256([]byte(token))
	for _, p := range t.list {
		if subtle.ConstantTimeCompare(p.hash[:], hash[:]) == 1 {
			name, ok = p.name, true
		}
	}
	return name, ok
}
