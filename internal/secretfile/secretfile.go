// Package secretfile decides whether a file that holds a secret is kept as one.
package secretfile

import "io/fs"

// Open says whether others than those who are meant to can read or change a file.
//
// Its owner alone may: mode 0600 or less. One exception is made, as PostgreSQL's clients do for keys: a file of root that this process, which is not
// root, can read through its group alone: mode 0640 or less. An administrator has put it there, and chosen the group. Kubernetes mounts secrets so
// for a container that does not run as root.
func Open(info fs.FileInfo) bool { return open(info.Mode().Perm(), byRoot(info)) }

// open is Open for a mode; byRoot says that the file is root's and this process is not.
func open(mode fs.FileMode, byRoot bool) bool {
	if byRoot {
		return mode&0o037 != 0
	}
	return mode&0o077 != 0
}
