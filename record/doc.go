// Package record holds weir's vocabulary: records, event time, positions, canonical JSON and hashes. Values only: nothing here
// starts a goroutine, reads a clock or does I/O.
//
// # Canonical JSON: FINAZ_JSON_V1
//
// Every hash and manifest of weir is over the bytes of one canonical form, so that equal documents have equal hashes on every
// platform and in every version. [Canonical], [AppendJSON], [AppendFloat] and [AppendString] write it:
//
//   - UTF-8, no byte order mark, no white space; "," and ":" separate.
//   - The keys of an object are sorted by Unicode code point, which is the order of their UTF-8 bytes (and not that of UTF-16).
//   - Strings escape only '"', '\' and the control characters below U+0020: \b \t \n \f \r where JSON has a short form, otherwise
//     \u00xx in lower-case hex. DEL, U+2028, '<', '>', '&' and '/' stand as they are.
//   - A number written with a point or an exponent is a binary64 float, any other an integer. An integer has any size and is kept
//     digit by digit; the integer -0 is 0, since integers have no negative zero (the float -0.0 keeps its sign).
//   - A float is the shortest decimal that reads back as the same float, always with ".0" or an exponent. The exponent form is used
//     when the decimal exponent is below -4 or at least 16, with a sign and at least two digits: 2.0, 0.1, 1e-05, 1e+16, -0.0.
//     A float too small for binary64 is rounded as IEEE 754 does, to a subnormal or zero.
//
// Reading is strict. These are errors, with the byte offset, line and column of the cause (see [SyntaxError]): NaN and infinities,
// floats that overflow binary64 (1e400), duplicate keys (compared after unescaping), invalid UTF-8, lone or reversed surrogates,
// unescaped control characters, needless leading zeros, trailing commas, a byte order mark, more than [MaxDepth] levels of nesting,
// anything after the document, and an empty document.
//
// # Reading records
//
// A [Scanner] reads the named fields of one record after another without allocating, and validates the rest of the document.
// It is as strict as above with two differences: the tokens NaN, Infinity and -Infinity are read (as [NonFinite]), because producers
// write them and weir treats them as gaps, and only the named fields are checked for duplicates.
package record
