package record

import (
	"math"
	"strconv"
	"unsafe"
)

// AppendFloat appends a float as FINAZ_JSON_V1 writes it: the shortest decimal that reads back as f, always with ".0" or an exponent;
// the exponent form when the decimal exponent is below -4 or at least 16. f must be finite.
func AppendFloat(dst []byte, f float64) []byte {
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.AppendFloat(dst, f, 'e', -1, 64)
	}
	at := len(dst)
	dst = strconv.AppendFloat(dst, f, 'f', -1, 64)
	for _, c := range dst[at:] {
		if c == '.' {
			return dst
		}
	}
	return append(dst, ".0"...)
}

// exactPowers are the powers of ten that a binary64 holds exactly.
var exactPowers = [...]float64{1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
	1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22}

// ParseFloat is the binary64 nearest to a JSON number literal, rounded half to even. A literal that overflows gives an infinity;
// NaN, Infinity and -Infinity give what they say. raw is a literal that Scan or Decode accepted; of anything else the result is NaN.
func ParseFloat(raw []byte) float64 {
	// At most 2^53 times or over an exact power of ten is one correctly rounded operation on exact operands.
	var mantissa uint64
	i, digits, scale := 0, 0, 0
	if len(raw) > 0 && raw[0] == '-' {
		i = 1
	}
	first := i
	for ; i < len(raw) && raw[i]-'0' <= 9; i++ {
		mantissa = mantissa*10 + uint64(raw[i]-'0')
	}
	digits = i - first
	if i < len(raw) && raw[i] == '.' && digits > 0 {
		point := i
		for i++; i < len(raw) && raw[i]-'0' <= 9; i++ {
			mantissa = mantissa*10 + uint64(raw[i]-'0')
		}
		scale = i - point - 1
		digits += scale
	}
	// 19 digits cannot wrap around.
	if i != len(raw) || digits == 0 || digits > 19 || mantissa > 1<<53 || scale >= len(exactPowers) {
		return parseFloatSlow(raw)
	}
	f := float64(mantissa)
	if scale > 0 {
		f /= exactPowers[scale]
	}
	if first == 1 {
		f = -f
	}
	return f
}

// parseFloatSlow has strconv do it: exponents and long mantissas.
func parseFloatSlow(raw []byte) float64 {
	if len(raw) == 0 {
		return math.NaN()
	}
	// strconv keeps its argument only in an error, which dies here.
	f, err := strconv.ParseFloat(unsafe.String(&raw[0], len(raw)), 64)
	if err != nil && !math.IsInf(f, 0) {
		return math.NaN()
	}
	return f
}
