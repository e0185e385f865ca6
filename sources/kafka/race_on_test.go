//go:build race

package kafka_test

// raced says whether this is a build with the race detector, which takes several times the memory.
const raced = true
