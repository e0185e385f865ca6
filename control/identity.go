package control

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
)

// RunIDOf is "run_" and the hex SHA-256 of principal \0 operation \0 key \0 hash, where hash is the SHA-256 of the body, 32 bytes.
func RunIDOf(r Request) string {
	body := sha256.Sum256(r.Body)
	h := sha256.New()
	for _, s := range []string{r.Principal, r.Operation, r.Key} {
		h.Write([]byte(s))
		h.Write([]byte{0})
	}
	h.Write(body[:])
	return "run_" + hex.EncodeToString(h.Sum(nil))
}

// NewOwner makes an owner id that no other process incarnation has: host, process id and 128 random bits.
func NewOwner() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "host"
	}
	var b [16]byte
	rand.Read(b[:])
	return fmt.Sprintf("%.64s-%d-%x", host, os.Getpid(), b)
}
