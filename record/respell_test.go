package record_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/weirstream/weir/record"
)

// TestEqualMeaningEqualBytes spells random values in many ways (order of keys, white space, needless escapes, exponents) and
// canonicalises each spelling.
func TestEqualMeaningEqualBytes(t *testing.T) {
	t.Parallel()
	const seed = 8259
	r := rand.New(rand.NewPCG(seed, seed))
	for range 300 {
		v := randomValue(r, 4)
		want, err := record.AppendJSON(nil, v)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for range 5 {
			text := spell(r, v)
			if got, err := record.Canonical([]byte(text)); err != nil || string(got) != string(want) {
				t.Fatalf("seed %d: Canonical(%+q) = %+q, %v; want %+q", seed, text, got, err, want)
			}
		}
	}
}

func randomValue(r *rand.Rand, levels int) any {
	kinds := 8
	if levels == 0 {
		kinds = 6
	}
	switch r.IntN(kinds) {
	case 0:
		return nil
	case 1:
		return r.IntN(2) == 0
	case 2:
		return randomText(r)
	case 3:
		return record.Integer(strconv.FormatInt(int64(r.Uint64())>>r.IntN(64), 10))
	case 4:
		return float64(r.IntN(2_000_001)-1_000_000) / math.Pow10(r.IntN(25))
	case 5:
		for {
			if f := math.Float64frombits(r.Uint64()); !math.IsNaN(f) && !math.IsInf(f, 0) {
				return f
			}
		}
	case 6:
		list := make([]any, r.IntN(5))
		for i := range list {
			list[i] = randomValue(r, levels-1)
		}
		return list
	}
	members := map[string]any{}
	for range r.IntN(20) {
		members[randomText(r)] = randomValue(r, levels-1)
	}
	return members
}

func randomText(r *rand.Rand) string {
	alphabet := []rune("ab\x00\n\"\\/\u007f\u00e9\u2028\ud7ff\ue000\ufb33\uffff\U00010000\U0001f600\U0010ffff")
	text := make([]rune, r.IntN(6))
	for i := range text {
		text[i] = alphabet[r.IntN(len(alphabet))]
	}
	return string(text)
}

// spell writes a value in one of the ways that JSON allows.
func spell(r *rand.Rand, v any) string {
	space := func() string { return strings.Repeat(string(" \t\r\n"[r.IntN(4)]), r.IntN(2)) }
	var text string
	switch v := v.(type) {
	case nil:
		text = "null"
	case bool:
		text = strconv.FormatBool(v)
	case string:
		text = spellText(r, v)
	case record.Integer:
		text = string(v)
	case float64:
		text = spellFloat(r, v)
	case []any:
		parts := make([]string, len(v))
		for i := range v {
			parts[i] = spell(r, v[i])
		}
		text = "[" + space() + strings.Join(parts, ",") + "]"
	case map[string]any:
		var parts []string // in the random order of the map
		for key, value := range v {
			parts = append(parts, space()+spellText(r, key)+space()+":"+spell(r, value))
		}
		text = "{" + space() + strings.Join(parts, ",") + "}"
	}
	return space() + text + space()
}

func spellText(r *rand.Rand, s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range s {
		switch must := c < 0x20 || c == '"' || c == '\\'; {
		case !must && r.IntN(2) == 0:
			b.WriteRune(c)
		case c == '/' || c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteRune(c)
		case c >= 0x10000:
			fmt.Fprintf(&b, `\u%04X\u%04x`, 0xd800+(c-0x10000)>>10, 0xdc00+(c-0x10000)&0x3ff)
		default:
			fmt.Fprintf(&b, `\u%04x`, c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func spellFloat(r *rand.Rand, f float64) string {
	switch r.IntN(4) {
	case 0:
		return strconv.FormatFloat(f, 'E', -1, 64)
	case 1:
		return strconv.FormatFloat(f, 'e', 20, 64) // more digits than needed
	case 2:
		if text := strconv.FormatFloat(f, 'f', -1, 64); strings.Contains(text, ".") {
			return text + strings.Repeat("0", r.IntN(3))
		} else {
			return text + ".0"
		}
	}
	return strconv.FormatFloat(f, 'f', -1, 64) + "e-0"
}
