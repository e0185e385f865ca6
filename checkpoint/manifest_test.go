package checkpoint_test

import (
	"bytes"
	"maps"
	"strings"
	"testing"

	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
)

// manifestBytes is a manifest as it is stored.
func manifestBytes(t testing.TB) []byte {
	t.Helper()
	w := newWorld(t)
	w.feed(t, 300, 300)
	b, err := checkpoint.GetBytes(t.Context(), w.blobs, w.save(t).Manifest, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A manifest is read back to the very bytes, and no byte of it may be another one.
func TestManifestIsExact(t *testing.T) {
	t.Parallel()
	b := manifestBytes(t)
	m, err := checkpoint.ParseManifest(b)
	if err != nil {
		t.Fatal(err)
	}
	hash := m.Hash()
	again, err := m.Encode()
	if err != nil || !bytes.Equal(again, b) || m.Hash() != hash || m.Document()["manifest_hash"] != hash {
		t.Errorf("read and written it is another: %v", err)
	}
	for at := range b {
		c := bytes.Clone(b)
		c[at] ^= 1 << (at % 7)
		if _, err := checkpoint.ParseManifest(c); !codes.Has(err, codes.CheckpointCorrupt) && !codes.Has(err, codes.StoreNewer) {
			t.Fatalf("byte %d changed: %v", at, err)
		}
		if at%5 > 0 {
			continue
		}
		if _, err := checkpoint.ParseManifest(b[:at]); !codes.Has(err, codes.CheckpointCorrupt) {
			t.Fatalf("cut short at %d: %v", at, err)
		}
	}
	for what, c := range map[string][]byte{"a space": append([]byte(" "), b...), "a line": append(bytes.Clone(b), '\n'), "twice": append(bytes.Clone(b), b...), "null": []byte("null")} {
		_, err := checkpoint.ParseManifest(c)
		refusedWith(t, what, err, codes.CheckpointCorrupt)
	}
}

// seal gives a document the hash that fits it.
func seal(t *testing.T, doc map[string]any) []byte {
	t.Helper()
	body := maps.Clone(doc)
	delete(body, "manifest_hash")
	b, err := record.AppendJSON(nil, body)
	if err != nil {
		t.Fatal(err)
	}
	body["manifest_hash"] = record.Hash(b)
	if b, err = record.AppendJSON(nil, body); err != nil {
		t.Fatal(err)
	}
	return b
}

// Every field is wanted, and of its kind, and no other one is taken, also when the hash is right. All that is wrong is named.
func TestManifestIsReadStrictly(t *testing.T) {
	t.Parallel()
	src := manifestBytes(t)
	fresh := func() map[string]any {
		v, err := record.Decode(src)
		if err != nil {
			t.Fatal(err)
		}
		return v.(map[string]any)
	}
	if _, err := checkpoint.ParseManifest(seal(t, fresh())); err != nil {
		t.Fatal(err)
	}
	// Every member of every object, taken away, or of another kind.
	var visit func(path string, get func(doc map[string]any) any)
	tried := 0
	visit = func(path string, get func(doc map[string]any) any) {
		switch v := get(fresh()).(type) {
		case map[string]any:
			for key := range v {
				if strings.Contains(path, "plan") || key == "manifest_hash" {
					continue
				}
				for what, change := range map[string]func(o map[string]any){
					"missing": func(o map[string]any) { delete(o, key) },
					"true":    func(o map[string]any) { o[key] = []any{true} },
					"-1":      func(o map[string]any) { o[key] = record.Integer("-1") },
				} {
					if strings.Contains(path, ".state_versions") && what == "missing" || strings.HasSuffix(path, ".state") && what == "missing" {
						continue // as many as there are
					}
					doc := fresh()
					change(get(doc).(map[string]any))
					tried++
					if m, err := checkpoint.ParseManifest(seal(t, doc)); !codes.Has(err, codes.CheckpointCorrupt) {
						t.Errorf("%s.%s %s: %v, %v", path, key, what, m != nil, err)
					}
				}
				visit(path+"."+key, func(doc map[string]any) any { return get(doc).(map[string]any)[key] })
			}
			doc := fresh()
			get(doc).(map[string]any)["surplus"] = "x"
			if _, err := checkpoint.ParseManifest(seal(t, doc)); !strings.Contains(path, "plan") && !codes.Has(err, codes.CheckpointCorrupt) {
				t.Errorf("%s with a surplus member: %v", path, err)
			}
		case []any:
			if len(v) > 0 {
				visit(path+"[0]", func(doc map[string]any) any { return get(doc).([]any)[0] })
			}
		}
	}
	visit("", func(doc map[string]any) any { return doc })
	if tried < 100 {
		t.Errorf("only %d changes were tried", tried)
	}

	doc := fresh()
	doc["epoch"], doc["status"], doc["watermark"], doc["surplus"] = record.Integer("0"), "CLOSED", "yesterday", true
	delete(doc, "store")
	_, err := checkpoint.ParseManifest(seal(t, doc))
	refusedWith(t, "five mistakes", err, codes.CheckpointCorrupt, ".epoch", ".status", ".watermark", "surplus", ".store")
}

func TestManifestContradictsItself(t *testing.T) {
	t.Parallel()
	src := manifestBytes(t)
	for what, c := range map[string]struct {
		change func(doc map[string]any)
		code   *codes.Code
		word   string
	}{
		"a later version": {func(d map[string]any) { d["version"] = record.Integer("2") }, codes.StoreNewer, "version 2"},
		"another format":  {func(d map[string]any) { d["format"] = "weir/handoff" }, codes.CheckpointCorrupt, ".format"},
		"sink behind":     {func(d map[string]any) { d["sink"].(map[string]any)["through_epoch"] = record.Integer("7") }, codes.CheckpointCorrupt, "through_epoch"},
		"rows differ": {func(d map[string]any) {
			d["sink"].(map[string]any)["rows"].([]any)[0].(map[string]any)["rows"] = record.Integer("7")
		}, codes.CheckpointCorrupt, "outputs"},
		"rows missing":          {func(d map[string]any) { d["sink"].(map[string]any)["rows"] = []any{} }, codes.CheckpointCorrupt, ".sink.rows"},
		"partitions disordered": {func(d map[string]any) { p := d["partitions"].([]any); p[0], p[1] = p[1], p[0] }, codes.CheckpointCorrupt, "in order"},
		"no partitions":         {func(d map[string]any) { d["partitions"] = []any{} }, codes.CheckpointCorrupt, ".partitions"},
		"a blob twice": {func(d map[string]any) {
			s := d["partitions"].([]any)[0].(map[string]any)["state"].(map[string]any)
			s["keys"] = append([]any{s["keys"].([]any)[0]}, s["keys"].([]any)...)
		}, codes.CheckpointCorrupt, "twice"},
		"a blob of another node": {func(d map[string]any) {
			s := d["partitions"].([]any)[0].(map[string]any)["state"].(map[string]any)
			s["keys"] = s["core"]
		}, codes.CheckpointCorrupt, "belong"},
		"a position with zeros": {func(d map[string]any) {
			d["partitions"].([]any)[0].(map[string]any)["cut"].(map[string]any)["next"] = "007"
		}, codes.CheckpointCorrupt, "leading zeros"},
	} {
		v, err := record.Decode(src)
		if err != nil {
			t.Fatal(err)
		}
		doc := v.(map[string]any)
		c.change(doc)
		_, err = checkpoint.ParseManifest(seal(t, doc))
		refusedWith(t, what, err, c.code, c.word)
	}
}

// FuzzParseManifest: whatever is read is written again to the same bytes.
func FuzzParseManifest(f *testing.F) {
	f.Add(manifestBytes(f))
	f.Add([]byte(`{"format":"weir/checkpoint","version":2}`))
	f.Fuzz(func(t *testing.T, src []byte) {
		m, err := checkpoint.ParseManifest(src)
		if err != nil {
			if codes.Of(err) == nil {
				t.Errorf("an error without a code: %v", err)
			}
			return
		}
		if again, err := m.Encode(); err != nil || !bytes.Equal(again, src) {
			t.Errorf("%v\n%s\n%s", err, src, again)
		}
	})
}
