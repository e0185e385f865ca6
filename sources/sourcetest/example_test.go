package sourcetest_test

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/sourcetest"
)

// A log that fails once before its second record: whoever reads it opens it again where it stands.
func ExampleLog() {
	ctx := context.Background()
	log := sourcetest.New(sourcetest.Config{Bounded: true})
	log.Append(0, record.Record{Value: []byte("a")}, record.Record{Value: []byte("b")})
	log.FailAt(0, record.Offset(1), errors.New("the cable was pulled"))

	next := map[int32]record.Position{0: record.Offset(0)}
	for {
		reader, err := log.Open(ctx, next)
		if err != nil {
			fmt.Println(err)
			return
		}
		for err == nil {
			batches, failed := reader.Poll(ctx, 0)
			err = failed
			for i := range batches {
				for _, r := range batches[i].Records {
					fmt.Printf("%s ", r.Value)
				}
				next[batches[i].Partition] = batches[i].Next
				batches[i].Done()
			}
		}
		_ = reader.Close()
		if err == io.EOF {
			break
		}
		fmt.Printf("(%v) ", err)
	}
	leaked, _ := log.Outstanding()
	fmt.Println("end, leaked:", leaked)
	// Output: a (the cable was pulled) b end, leaked: 0
}
