//go:build !linux

package main

import "github.com/weirstream/weir/codes"

// defaultFreeDisk is that of --min-free-disk, in MiB.
const defaultFreeDisk = 0

func freeBytes(string) (int64, error) {
	return 0, codes.New(codes.ConfigInvalid, "--min-free-disk is known on Linux only; set it to 0")
}

func diskBytes(string) (int64, error) { return 0, nil }
