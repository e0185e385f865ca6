package postgres_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/internal/pgtest"
	"github.com/weirstream/weir/sinks"
)

// TestTargetFull: a server without room is down for us, says so, and takes the same rows once there is room again.
func TestTargetFull(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t, nil)
	s := sink(t, db.Super, nil)
	w, err := s.Open(t.Context(), target("x"))
	if err != nil {
		t.Fatal(err)
	}
	conn := pgtest.Connect(t, db.Super)
	for _, text := range []string{
		`CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$`,
		`CREATE TRIGGER full_disk BEFORE INSERT ON results FOR EACH ROW EXECUTE FUNCTION full_disk()`,
	} {
		if _, err := conn.Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	err = w.Publish(t.Context(), []sinks.Rows{rows(0, 0, 4)})
	if !codes.Has(err, codes.SinkUnavailable) || !strings.Contains(err.Error(), "table public.results") || !strings.Contains(err.Error(), "disk is full; make room") {
		t.Errorf("%v", err)
	}
	_ = w.Close()
	if _, err := conn.Exec(t.Context(), `DROP TRIGGER full_disk ON results`); err != nil {
		t.Fatal(err)
	}
	if w, err = s.Open(t.Context(), target("x")); err != nil || w.Published()[0] != 0 {
		t.Fatalf("%v", err)
	}
	if err := w.Publish(t.Context(), []sinks.Rows{rows(0, 0, 4)}); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
}

// TestKeysTooLongForRevisions: the key of a row has to fit an index where rows are revisions; what does not is refused with what it is about, and elsewhere it is taken.
func TestKeysTooLongForRevisions(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t, nil)
	rng := rand.New(rand.NewPCG(1, 2))
	key := make([]byte, 9000)
	for i := range key {
		key[i] = byte('!' + rng.IntN(90))
	}
	for _, revised := range []bool{true, false} {
		to := target("x", "revision")
		to.Revised = revised
		if !revised {
			to.RunID = "plain"
		}
		s := sink(t, db.Super, nil)
		if !revised {
			if _, err := pgtest.Connect(t, db.Super).Exec(t.Context(), "DROP TABLE results, results_progress"); err != nil {
				t.Fatal(err)
			}
		}
		w, err := s.Open(t.Context(), to)
		if err != nil {
			t.Fatal(err)
		}
		r := sinks.Rows{}
		r.Append(1, []byte("e"), key, []operators.Value{operators.Number(1), operators.Number(0)})
		err = w.Publish(t.Context(), []sinks.Rows{r})
		_ = w.Close()
		if revised && (!codes.Has(err, codes.SinkRefused) || !strings.Contains(err.Error(), "larger than the server takes") || !strings.Contains(err.Error(), "table public.results")) || !revised && err != nil {
			t.Errorf("revised %v: %v", revised, err)
		}
	}
}
