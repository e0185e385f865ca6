//go:build !unix

package secretfile

import "io/fs"

func byRoot(fs.FileInfo) bool { return false }
