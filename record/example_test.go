package record_test

import (
	"errors"
	"fmt"

	"github.com/weirstream/weir/record"
)

func ExampleCanonical() {
	canonical, err := record.Canonical([]byte(`{ "price": 1e2, "id": 9007199254740993, "name": "caf\u00e9" }`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s\n", canonical)
	// Output: {"id":9007199254740993,"name":"café","price":100.0}
}

func ExampleAppendJSON() {
	canonical, err := record.AppendJSON(nil, []any{nil, nil, 2.0, 3.0, 4.0, 5.0})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s\n%s\n", canonical, record.Hash(canonical))
	// Output:
	// [null,null,2.0,3.0,4.0,5.0]
	// sha256:9e906a09a1c594964c16291a77cb38b0ffb021e69c230d71d1dd77ebbd6a7877
}

func ExampleDecode() {
	_, err := record.Decode([]byte("{\n  \"price\": 01\n}"))
	fmt.Println(err)
	// Output: line 2, column 12 (byte 13): a number has a needless leading zero
}

func ExampleScanner() {
	scanner := record.NewScanner([]string{"instrument", "close", "volume"})
	fields := make([]record.Field, 3)
	for _, doc := range []string{
		`{"close":101.25,"event_id":"e1","instrument":"3"}`,
		`{"close":NaN,"event_id":"e2","instrument":"3","volume":12}`,
	} {
		if err := scanner.Scan([]byte(doc), fields); err != nil {
			fmt.Println(err)
			continue
		}
		price, volume := fields[1], fields[2]
		fmt.Printf("%s %s (%s), volume %s\n", fields[0].Raw, price.Raw, price.Kind, volume.Kind)
	}
	// Output:
	// 3 101.25 (number), volume missing
	// 3 NaN (non-finite), volume number
}

func ExampleParseTime() {
	t, err := record.ParseTime([]byte("2026-01-05T15:30:00+01:00"))
	fmt.Println(t, err)
	_, err = record.ParseTime([]byte("2026-01-05T15:30:00"))
	fmt.Println(errors.Is(err, record.ErrTimeZone), err)
	// Output:
	// 2026-01-05T14:30:00Z <nil>
	// true time without zone; append Z or an offset such as +01:00
}

func ExampleParsePosition() {
	p, err := record.ParsePosition("49590338271490256608559692538361571095921575989136588898")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(p.Next(), p.Cmp(record.Offset(7)))
	// Output: 49590338271490256608559692538361571095921575989136588899 1
}

func ExamplePartitionOf() {
	for _, key := range []string{"1", "2", "3"} {
		fmt.Print(record.PartitionOf([]byte(key), 4), " ")
	}
	// Output: 3 0 3
}
