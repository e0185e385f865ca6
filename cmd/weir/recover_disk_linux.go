package main

import "syscall"

// defaultFreeDisk is that of --min-free-disk on a disk that is large enough, in MiB.
const defaultFreeDisk = 256

// freeBytes is what somebody without special rights can still write to the file system of a path.
func freeBytes(path string) (int64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(path, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * s.Bsize, nil
}

// diskBytes is the size of the file system of a path.
func diskBytes(path string) (int64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(path, &s); err != nil {
		return 0, err
	}
	return int64(s.Blocks) * s.Bsize, nil
}
