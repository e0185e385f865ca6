package main

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
)

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

func orDash(s string) string { return cmp.Or(s, "-") }

func numberList(ps []int32) string {
	texts := make([]string, len(ps))
	for i, p := range ps {
		texts[i] = strconv.Itoa(int(p))
	}
	return strings.Join(texts, ", ")
}

func numbersOrEmpty(ps []int32) []any {
	out := make([]any, len(ps))
	for i, p := range ps {
		out[i] = p
	}
	return out
}
