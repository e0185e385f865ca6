//go:build race

package main

// slowdown is by how much the race detector slows a computation down: drills compute that much less under it.
const slowdown = 10
