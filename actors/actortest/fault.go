package actortest

import "github.com/weirstream/weir/actors/shell"

// FailOn makes a behaviour that returns cause instead of handling its n-th message, counted from 1.
func FailOn[M any](n int, cause error, b shell.Behaviour[M]) shell.Behaviour[M] {
	return onNth(n, b, func() error { return cause })
}

// PanicOn makes a behaviour that panics with value instead of handling its n-th message, counted from 1.
func PanicOn[M any](n int, value any, b shell.Behaviour[M]) shell.Behaviour[M] {
	return onNth(n, b, func() error { panic(value) })
}

func onNth[M any](n int, b shell.Behaviour[M], act func() error) shell.Behaviour[M] {
	seen := 0
	return shell.Intercept(b, func(*shell.Context, M) (bool, error) {
		seen++
		if seen == n {
			return false, act()
		}
		return true, nil
	})
}
