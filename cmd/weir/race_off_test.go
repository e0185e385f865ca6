//go:build !race

package main

// slowdown is by how much this build computes slower than the real one.
const slowdown = 1
