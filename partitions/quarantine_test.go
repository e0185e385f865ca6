package partitions

import (
	"reflect"
	"testing"

	"github.com/weirstream/weir/record"
)

func TestHeadersAreKeptAsTheyAre(t *testing.T) {
	t.Parallel()
	for _, headers := range [][]record.Header{
		nil, {}, {{}}, {{Key: "a", Value: []byte{}}, {Key: "a"}, {Key: "\xff\x00", Value: []byte("\x00")}, {Key: "a", Value: make([]byte, 1000)}},
	} {
		data := EncodeHeaders(headers)
		got, err := DecodeHeaders(data)
		if err != nil || !reflect.DeepEqual(got, headers) {
			t.Errorf("%#v, %v; want %#v", got, err, headers)
		}
		for n := range data {
			if got, err := DecodeHeaders(data[:n:n]); err == nil {
				t.Errorf("cut short at %d: %v", n, got)
			}
		}
		if got, err := DecodeHeaders(append(data, 0)); err == nil && data != nil {
			t.Errorf("too long: %v", got)
		}
	}
	for _, bad := range []string{"\x01\x00\x02", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\x80"} {
		if got, err := DecodeHeaders([]byte(bad)); err == nil {
			t.Errorf("%q: %v", bad, got)
		}
	}
}
