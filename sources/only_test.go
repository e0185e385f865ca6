package sources_test

import (
	"context"
	"slices"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/sources/sourcetest"
)

func TestAViewOfOnePartition(t *testing.T) {
	t.Parallel()
	log := sourcetest.New(sourcetest.Config{Name: "l", ID: "id", Partitions: 3})
	for p := range int32(3) {
		log.Append(p, record.Record{Value: []byte{'0' + byte(p)}})
	}
	view := sources.Only(log, 1)
	info, err := view.Info(t.Context())
	if err != nil || info.Name != "l" || info.ID != "id" || !slices.Equal(info.Partitions, []int32{1}) {
		t.Errorf("%+v, %v", info, err)
	}
	log.Recreate("other")
	if info, err = view.Info(t.Context()); err != nil || info.ID != "other" {
		t.Errorf("recreated: %+v, %v", info, err)
	}
	log.Append(1, record.Record{Value: []byte("x")})
	r, err := view.Open(t.Context(), map[int32]record.Position{1: record.Offset(0)})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, err := r.Poll(t.Context(), 10)
	if err != nil || len(got) != 1 || got[0].Partition != 1 || string(got[0].Records[0].Value) != "x" {
		t.Errorf("%v, %v", got, err)
	}
	if _, is := r.(sources.Observer); is {
		t.Error("a view observes what does not")
	}
	if _, err := view.Open(t.Context(), map[int32]record.Position{0: {}}); !codes.Has(err, codes.Internal) {
		t.Errorf("another partition is opened: %v", err)
	}
	if _, err := sources.Only(log, 7).Info(t.Context()); !codes.Has(err, codes.TopicMissing) {
		t.Errorf("a partition that is not there: %v", err)
	}
}

// observed is a log that observes, and whose readers do.
type observed struct{ *sourcetest.Log }

type observedReader struct {
	sources.Reader
	observed
}

func (o observed) Observe(ctx context.Context) (sources.Observation, error) {
	i, err := o.Info(ctx)
	return sources.Observation{Info: i, Extents: map[int32]sources.Extent{0: {}, 1: {End: record.Offset(5)}}}, err
}

func (o observed) Open(ctx context.Context, from map[int32]record.Position) (sources.Reader, error) {
	r, err := o.Log.Open(ctx, from)
	return observedReader{r, o}, err
}

func TestAViewObservesOnePartition(t *testing.T) {
	t.Parallel()
	view := sources.Only(observed{sourcetest.New(sourcetest.Config{Partitions: 2})}, 1)
	r, err := view.Open(t.Context(), map[int32]record.Position{1: record.Offset(0)})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for name, by := range map[string]any{"source": view, "reader": r} {
		seen, err := by.(sources.Observer).Observe(t.Context())
		if err != nil || !slices.Equal(seen.Partitions, []int32{1}) || len(seen.Extents) != 1 || seen.Extents[1].End != record.Offset(5) {
			t.Errorf("%s: %+v, %v", name, seen, err)
		}
	}
}
