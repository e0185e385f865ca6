package checkpoint

import (
	"errors"
	"io/fs"
	"os"
)

// Bare is the reason of a file error without its path: messages name blobs, never places.
func Bare(err error) error {
	var p *fs.PathError
	var l *os.LinkError
	switch {
	case errors.As(err, &p):
		return p.Err
	case errors.As(err, &l):
		return l.Err
	}
	return err
}
