// Package parquet writes flat tables as Apache Parquet, in the part of the format that every reader has:
//
//   - one row group for each 64 Ki rows or 16 MiB, in it one data page (version 1) for each column, with a checksum;
//   - integers and moments as DELTA_BINARY_PACKED, texts of few values as RLE_DICTIONARY, other texts as DELTA_BYTE_ARRAY, doubles as PLAIN;
//   - no compression: the same rows are the same bytes, whatever compressor, version or processor there is, and deltas leave little to it;
//   - statistics with the number of nulls, and least and greatest values of integers and moments.
//
// It knows nothing of runs or sinks. A null is kept apart from every number, and NaN is a number.
package parquet
