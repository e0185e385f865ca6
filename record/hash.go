package record

import (
	"crypto/sha256"
	"encoding/hex"
)

// HashPrefix starts every hash that weir writes.
const HashPrefix = "sha256:"

// Hash is "sha256:" and the lower-case hex SHA-256 of b.
func Hash(b []byte) string {
	sum := sha256.Sum256(b)
	return HashPrefix + hex.EncodeToString(sum[:])
}
