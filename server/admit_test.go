package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/server"
)

// A request that was admitted is the same run whenever it is sent again, even if its snapshot is not registered any more; a new one is refused then.
func TestAdmittedBeforeItsNamesWereGone(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	const gone = `{"flow":"ema","snapshot":"gone"}`
	first, _, err := p.store.Admit(t.Context(), control.Request{Principal: "local", Operation: server.Operation, Key: "k", Body: []byte(gone), Flow: "ema", Snapshot: "gone"})
	if err != nil {
		t.Fatal(err)
	}
	if status, doc := p.submit(t, "k", ` {"snapshot": "gone", "flow": "ema"}`); status != 200 || doc["id"] != first.ID {
		t.Errorf("again: %d %v", status, doc)
	}
	if status, doc := p.submit(t, "k2", gone); status != 422 || doc["code"] != "NAME_UNKNOWN" {
		t.Errorf("under another key: %d %v", status, doc)
	}
	p.store.Close()
	if status, doc := p.submit(t, "k", gone); status < 500 {
		t.Errorf("without a store: %d %v", status, doc)
	}
}

// Two keys are no key: which of them counts is nothing that a server should choose.
func TestSeveralKeys(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	for _, second := range []string{"b", "a", ""} {
		req, err := http.NewRequest("POST", p.URL+"/v1/runs", strings.NewReader(asks))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header["Idempotency-Key"] = []string{"a", second}
		resp, err := p.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 400 {
			t.Errorf("a and %q: %d", second, resp.StatusCode)
		}
	}
	if runs, _, err := p.store.ListRuns(t.Context(), control.RunFilter{}); err != nil || len(runs) != 0 {
		t.Errorf("admitted: %v, %v", runs, err)
	}
}
