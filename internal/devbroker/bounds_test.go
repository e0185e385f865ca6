package devbroker_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/devbroker"
)

// A request for more partitions than there is memory for is refused, again and again, and the broker goes on.
func TestTooManyPartitionsAreRefused(t *testing.T) {
	t.Parallel()
	b := start(t, devbroker.Config{Partitions: 2, Topics: []string{"ticks"}})
	admin := kadm.NewClient(client(t, b.Addr()))
	for _, n := range []int32{devbroker.MaxPartitions + 1, 2_000_000_000, math.MaxInt32} {
		made, err := admin.CreateTopics(t.Context(), n, 1, nil, "many")
		if err != nil || !errors.Is(made["many"].Err, kerr.InvalidPartitions) || !strings.Contains(made["many"].ErrMessage, "at most 10000") {
			t.Errorf("a topic of %d partitions: %+v, %v", n, made, err)
		}
		grown, err := admin.UpdatePartitions(t.Context(), int(n), "ticks")
		if err != nil || !errors.Is(grown["ticks"].Err, kerr.InvalidPartitions) {
			t.Errorf("growing to %d partitions: %+v, %v", n, grown, err)
		}
	}
	if made, err := admin.CreateTopics(t.Context(), 3, 1, nil, "few"); err != nil || made["few"].Err != nil {
		t.Errorf("a topic of 3 partitions: %+v, %v", made, err)
	}
	if grown, err := admin.UpdatePartitions(t.Context(), 5, "ticks"); err != nil || grown["ticks"].Err != nil {
		t.Errorf("growing to 5 partitions: %+v, %v", grown, err)
	}
	topics, err := admin.ListTopics(t.Context())
	if err != nil || len(topics) != 2 || len(topics["few"].Partitions) != 3 || len(topics["ticks"].Partitions) != 5 {
		t.Errorf("the broker has %v, %v", topics, err)
	}
	_, err = devbroker.Start(devbroker.Config{Partitions: devbroker.MaxPartitions + 1})
	wantCode(t, err, codes.ConfigInvalid, "at most 10000", "10001")
}

func TestTopicNamesThatKafkaForbidsAreRefused(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"": "empty", ".": "folder", "..": "folder", strings.Repeat("x", 250): "250 bytes",
		"a b": `' '`, "a/b": `'/'`, "../x": `'/'`, "ä": `'ä'`, "a\nb": `'\n'`, "a\xff": "'\ufffd'", "a:b": `':'`,
	} {
		_, err := devbroker.Start(devbroker.Config{Topics: []string{"good", name}})
		wantCode(t, err, codes.ConfigInvalid, want, "a-z A-Z 0-9 . _ -")
	}
	b := start(t, devbroker.Config{Topics: []string{"a", "A-z_0.9", "...", strings.Repeat("x", 249)}})
	admin := kadm.NewClient(client(t, b.Addr()))
	for _, name := range []string{"a b", "../x", ".", strings.Repeat("x", 250)} {
		made, err := admin.CreateTopics(t.Context(), 1, 1, nil, name, "good")
		if err != nil || !errors.Is(made[name].Err, kerr.InvalidTopicException) || made["good"].Err == nil {
			t.Errorf("%q is created by a client: %+v, %v", name, made, err)
		}
	}
	if topics, err := admin.ListTopics(t.Context()); err != nil || len(topics) != 4 {
		t.Errorf("the broker has %v, %v", topics.Names(), err)
	}
}
