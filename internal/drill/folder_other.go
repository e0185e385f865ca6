//go:build !unix

package drill

import (
	"errors"
	"os"
)

func lockFile(string, int) (*os.File, error) { return nil, errors.ErrUnsupported }

func isOwnFolder(string) bool { return false }
