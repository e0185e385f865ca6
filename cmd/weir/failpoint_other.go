//go:build !unix

package main

import "github.com/weirstream/weir/codes"

func canSignalItself() error {
	return codes.New(codes.ConfigInvalid, "%s works on Unix only: this system has no signal that stops a process", failpointsEnv)
}

func killItself() {}

func stopItself() {}
