// Package kinesis reads Kinesis streams.
package kinesis
