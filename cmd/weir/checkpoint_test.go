package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/control/postgres"
	"github.com/weirstream/weir/internal/fixture"
	"github.com/weirstream/weir/internal/pgtest"
)

// stage is a run over the fixture's log that was stopped twice, at open cuts, and has a checkpoint of each.
type stage struct {
	dir           string
	store, place  []string
	first, second string // epochs
}

// stopped runs the fixture's log up to a record.
func (s *stage) stopped(t *testing.T, run, end, n string) map[string]any {
	t.Helper()
	return parse(t, must(t, s.dir, args("run flow.yaml --log arrivals.log --partitions 3 --checkpoint-every 0 --json --run-id "+run+" "+end+" "+n, s.store, s.place)...))
}

func newStage(t *testing.T, store, place []string) *stage {
	t.Helper()
	s := &stage{dir: fixtureDir(t), store: store, place: place}
	must(t, s.dir, args("replay build --snapshot snapshot.jsonl --faults faults.json --out arrivals.log")...)
	s.stopped(t, "ticks-1", "--until-n", "9")
	s.first = s.epoch(t)
	s.stopped(t, "ticks-1", "--until-n", "16")
	s.second = s.epoch(t)
	return s
}

// on is a command on the store and its checkpoints.
func (s *stage) on(command string) []string { return args(command, s.store, s.place) }

// onStore is a command on the store alone.
func (s *stage) onStore(command string) []string { return args(command, s.store) }

func (s *stage) list(t *testing.T) (rows []map[string]any) {
	t.Helper()
	for _, r := range parse(t, must(t, s.dir, s.onStore("checkpoint list --json")...))["checkpoints"].([]any) {
		rows = append(rows, r.(map[string]any))
	}
	return rows
}

// epoch is that of the last checkpoint.
func (s *stage) epoch(t *testing.T) string {
	t.Helper()
	rows := s.list(t)
	if len(rows) == 0 {
		t.Fatal("the run has left no checkpoint")
	}
	return fmt.Sprint(rows[len(rows)-1]["epoch"])
}

func inFolder(t *testing.T) *stage {
	return newStage(t, []string{"--store", "sqlite:weir.db"}, []string{"--artifacts", "artifacts"})
}

// TestCheckpointsOnTheCommandLine: from a run to a restored one that ends with the golden hash, on both kinds of store.
func TestCheckpointsOnTheCommandLine(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(t *testing.T) *stage{
		"sqlite": inFolder,
		"postgres": func(t *testing.T) *stage {
			url := pgtest.Database(t, func(ctx context.Context, url string) error {
				_, err := postgres.Migrate(ctx, url)
				return err
			}).Runtime
			return newStage(t, []string{"--store", url}, []string{"--checkpoints", "store"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := make(t)
			s.shows(t)
			s.compares(t)
			s.restores(t)
			s.cleansUp(t)
		})
	}
}

func (s *stage) shows(t *testing.T) {
	rows := s.list(t)
	if len(rows) != 2 || rows[0]["run"] != "ticks-1" || rows[1]["new_bytes"].(float64) == 0 || rows[0]["created"] == nil || rows[0]["pinned"] != false {
		t.Fatalf("%v", rows)
	}
	doc := parse(t, must(t, s.dir, s.on("checkpoint show --json ticks-1 "+s.second)...))
	manifest := doc["manifest"].(map[string]any)
	if manifest["format"] != checkpoint.Format || manifest["manifest_hash"] != rows[1]["manifest_hash"] || manifest["run"] != "ticks-1" || manifest["flow"].(map[string]any)["plan"] == nil {
		t.Errorf("%v", doc)
	}
	journal := parse(t, must(t, s.dir, s.onStore("journal show --json ticks-1")...))
	if journal["status"] != "OPEN" || fmt.Sprint(journal["epoch"]) != s.second || journal["committed"] == nil || journal["fence_token"] != manifest["fence_token"] ||
		journal["watermark"] != manifest["watermark"] || journal["flow"] != manifest["flow"].(map[string]any)["fingerprint"] {
		t.Errorf("%v", journal)
	}
	records := 0.0
	for i, p := range journal["partitions"].([]any) {
		part, kept := p.(map[string]any), manifest["partitions"].([]any)[i].(map[string]any)
		cut, committed := kept["cut"].(map[string]any)
		if !committed {
			continue
		}
		records += part["counts"].(map[string]any)["records"].(float64)
		if part["next"] != cut["next"] || part["state"].(map[string]any)["core"].(map[string]any)["blobs"] != 1.0 {
			t.Errorf("%v, %v", part, kept)
		}
	}
	if records != 16 {
		t.Errorf("%v records", records)
	}
	text := must(t, s.dir, s.onStore("journal show ticks-1")...) + must(t, s.dir, s.on("checkpoint show ticks-1 "+s.first)...) + must(t, s.dir, s.onStore("checkpoint list ticks-1")...)
	for _, word := range []string{"OPEN", "fence token", "watermark", "partition", "new bytes", "instrument"} {
		if !strings.Contains(text, word) {
			t.Errorf("the text lacks %q:\n%s", word, text)
		}
	}
	refused(t, s.dir, 3, []string{"CHECKPOINT_UNKNOWN", "999"}, s.on("checkpoint show ticks-1 999")...)
	refused(t, s.dir, 2, []string{"latest", "not an epoch"}, s.on("checkpoint show ticks-1 latest")...)
	refused(t, s.dir, 3, []string{"RUN_UNKNOWN"}, s.onStore("journal show nobody")...)
}

func (s *stage) compares(t *testing.T) {
	verified := parse(t, must(t, s.dir, s.on("checkpoint verify --json")...))
	if verified["ok"] != true || len(verified["checkpoints"].([]any)) != 2 {
		t.Errorf("%v", verified)
	}
	r := weir(t, s.dir, "", s.on("checkpoint diff --json ticks-1 "+s.first+" "+s.second)...)
	diff := parse(t, r.stdout)
	if r.code != 4 || diff["equal"] != false || len(diff["partitions"].([]any)) == 0 || diff["only_second"].(map[string]any)["bytes"].(float64) == 0 {
		t.Errorf("exit %d: %v", r.code, diff)
	}
	if text := refused(t, s.dir, 4, nil, s.on("checkpoint diff ticks-1 "+s.first+" "+s.second)...).stdout; !strings.Contains(text, "next position") || !strings.Contains(text, "records +") {
		t.Errorf("%s", text)
	}
	if text := must(t, s.dir, s.on("checkpoint diff ticks-1 "+s.first+" ticks-1 "+s.first)...); text != "equal\n" {
		t.Errorf("%s", text)
	}
	ok := parse(t, must(t, s.dir, s.on("checkpoint check-restore --json flow.yaml ticks-1 "+s.first)...))
	if ok["ok"] != true || ok["error"] != nil || len(ok["operators"].([]any)) == 0 {
		t.Errorf("%v", ok)
	}
	changed := strings.Replace(string(fixture.Flow), "type: ema", "type: sma", 1)
	if changed == string(fixture.Flow) {
		t.Fatal("the flow has no EMA")
	}
	write(t, s.dir, "changed.yaml", changed)
	r = refused(t, s.dir, 3, []string{"RUN_MISMATCH", "TYPE CHANGED"}, s.on("checkpoint check-restore changed.yaml ticks-1 "+s.first)...)
	if !strings.Contains(r.stdout, "TYPE CHANGED") || strings.Contains(r.stdout, "REFUSED") {
		t.Errorf("%s", r.stdout)
	}
	if doc := parse(t, refused(t, s.dir, 3, nil, s.on("checkpoint check-restore --json changed.yaml ticks-1 "+s.first)...).stdout); doc["ok"] != false || doc["error"].(map[string]any)["code"] != "RUN_MISMATCH" {
		t.Errorf("%v", doc)
	}
	refused(t, s.dir, 3, []string{"RUN_MISMATCH"}, s.on("checkpoint restore --flow changed.yaml --as other ticks-1 "+s.first)...)
	refused(t, s.dir, 3, []string{"RUN_UNKNOWN"}, s.onStore("journal show other")...)
}

func (s *stage) restores(t *testing.T) {
	refused(t, s.dir, 2, []string{"--as"}, s.on("checkpoint restore ticks-1 "+s.first)...)
	refused(t, s.dir, 3, []string{"RUN_MISMATCH", "never goes back"}, s.on("checkpoint restore --as ticks-1 ticks-1 "+s.first)...)
	refused(t, s.dir, 3, []string{"CHECKPOINT_UNKNOWN"}, s.on("checkpoint restore --as ticks-2 ticks-1 1000")...)
	doc := parse(t, must(t, s.dir, s.on("checkpoint restore --json --as ticks-2 ticks-1 "+s.first)...))
	if doc["restored"] != true || doc["as"] != "ticks-2" {
		t.Errorf("%v", doc)
	}
	if j := parse(t, must(t, s.dir, s.onStore("journal show --json ticks-2")...)); fmt.Sprint(j["epoch"]) != s.first || j["status"] != "OPEN" {
		t.Errorf("%v", j)
	}
	// Both go on to the end, the old run from its journal, the new one from the older checkpoint, with the rest of the same input.
	for _, run := range []string{"ticks-1", "ticks-2"} {
		if doc := s.stopped(t, run, "--once-n", "23"); doc["values_hash"] != fixture.ValuesHash {
			t.Errorf("%s: %v", run, doc)
		}
	}
	refused(t, s.dir, 3, []string{"RUN_MISMATCH", "ticks-2"}, s.on("checkpoint restore --as ticks-2 ticks-1 "+s.first)...)
	refused(t, s.dir, 3, []string{"RUN_FINISHED"}, s.on("checkpoint restore --as ticks-3 ticks-1 "+fmt.Sprint(s.last(t, "ticks-1")))...)
}

func (s *stage) last(t *testing.T, run string) (epoch any) {
	t.Helper()
	for _, r := range s.list(t) {
		if r["run"] == run {
			epoch = r["epoch"]
		}
	}
	return epoch
}

func (s *stage) cleansUp(t *testing.T) {
	must(t, s.dir, s.onStore("checkpoint pin ticks-1 "+s.first)...)
	if rows := s.list(t); rows[0]["pinned"] != true {
		t.Errorf("%v", rows)
	}
	if doc := parse(t, must(t, s.dir, s.onStore("checkpoint unpin --json ticks-1 "+s.first)...)); doc["pinned"] != false {
		t.Errorf("%v", doc)
	}
	refused(t, s.dir, 3, []string{"CHECKPOINT_UNKNOWN"}, s.onStore("checkpoint pin ticks-1 1000")...)
	before := s.list(t)
	for _, apply := range []string{"", "--apply"} {
		doc := parse(t, must(t, s.dir, s.on("checkpoint gc --json --keep 1 "+apply)...))
		if doc["applied"] != (apply != "") || len(doc["dropped"].([]any)) != 0 || doc["kept"] != float64(len(before)) || doc["purged"].(map[string]any)["blobs"] != 0.0 {
			t.Errorf("all are young: %v", doc)
		}
	}
	refused(t, s.dir, 2, []string{"--grace", "15m"}, s.on("checkpoint gc --grace 1m")...)
	refused(t, s.dir, 2, []string{"--keep"}, s.on("checkpoint gc --keep 0")...)
	if after := s.list(t); len(after) != len(before) || len(before) != 4 {
		t.Errorf("%d checkpoints, %d before", len(after), len(before))
	}
}

// TestDamagedCheckpointsOnTheCommandLine: a flipped byte and a missing blob are exit code 6 with the blob's name, and nothing is begun.
func TestDamagedCheckpointsOnTheCommandLine(t *testing.T) {
	t.Parallel()
	s := inFolder(t)
	blobs := filepath.Join(s.dir, "artifacts", "checkpoints", "sha256")
	entries, err := os.ReadDir(blobs)
	if err != nil || len(entries) == 0 {
		t.Fatal(entries, err)
	}
	shown := must(t, s.dir, s.on("checkpoint show --json ticks-1 "+s.first)...) + fmt.Sprint(s.list(t)[0])
	for i, e := range entries {
		if !strings.Contains(shown, e.Name()) {
			continue
		}
		path := filepath.Join(blobs, e.Name())
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			bad := []byte(string(good))
			bad[len(bad)/2] ^= 1
			err = os.WriteFile(path, bad, 0o600)
		} else {
			err = os.Remove(path)
		}
		if err != nil {
			t.Fatal(err)
		}
		refused(t, s.dir, 6, []string{"CHECKPOINT_CORRUPT", e.Name()}, s.on("checkpoint restore --as new ticks-1 "+s.first)...)
		refused(t, s.dir, 6, []string{"CHECKPOINT_CORRUPT", e.Name()}, s.on("checkpoint verify ticks-1 "+s.first)...)
		if doc := parse(t, refused(t, s.dir, 6, nil, s.on("checkpoint verify --json ticks-1")...).stdout); doc["ok"] != false {
			t.Errorf("%v", doc)
		}
		refused(t, s.dir, 3, []string{"RUN_UNKNOWN"}, s.onStore("journal show new")...)
		if err := os.WriteFile(path, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	must(t, s.dir, s.on("checkpoint verify")...)
}

// TestFoldersOfCheckpoints: a folder that is missing, of another store, without a mark, linked, or open to others is refused by name; what is not
// weir's is left alone.
func TestFoldersOfCheckpoints(t *testing.T) {
	t.Parallel()
	s := inFolder(t)
	folder := filepath.Join(s.dir, "artifacts", "checkpoints")
	refused(t, s.dir, 3, []string{"FILE_MISSING", "nowhere"}, s.onStore("checkpoint verify --artifacts nowhere")...)
	refused(t, s.dir, 2, []string{"--artifacts"}, s.onStore("checkpoint verify")...)
	refused(t, s.dir, 3, []string{"CONFIG_INVALID", "SQLite"}, s.onStore("checkpoint verify --checkpoints store")...)
	foreign := filepath.Join(folder, "sha256", "notes\x1b[2J\n.txt")
	if err := os.WriteFile(foreign, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := must(t, s.dir, s.on("checkpoint gc --apply")...)
	if !strings.Contains(out, "left alone") || strings.Contains(out, "\x1b") {
		t.Errorf("%q", out)
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Error(err)
	}
	other := newStage(t, s.store, s.place)
	refused(t, other.dir, 3, []string{"CONFIG_INVALID", "belongs to the store"}, other.onStore("checkpoint gc --apply --checkpoints "+folder)...)
	link := filepath.Join(s.dir, "link")
	if err := os.Symlink(folder, link); err != nil {
		t.Fatal(err)
	}
	refused(t, s.dir, 3, []string{"CONFIG_INVALID", "links are not followed"}, s.onStore("checkpoint gc --checkpoints "+link)...)
	if err := os.Chmod(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	refused(t, s.dir, 3, []string{"CONFIG_INVALID", "0777"}, s.on("checkpoint gc")...)
	if err := os.Chmod(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(folder, "STORE")); err != nil {
		t.Fatal(err)
	}
	refused(t, s.dir, 3, []string{"CONFIG_INVALID", "no file STORE"}, s.on("checkpoint gc --apply")...)
	blobs := 0
	if err := filepath.WalkDir(folder, func(_ string, e fs.DirEntry, err error) error {
		if checkpoint.CheckName(e.Name()) == nil {
			blobs++
		}
		return err
	}); err != nil || blobs == 0 {
		t.Errorf("%d blobs, %v", blobs, err)
	}
}

// TestCheckpointsOfAnotherFolder: checkpoints that were kept in another folder than the one that is asked are not called damaged.
func TestCheckpointsOfAnotherFolder(t *testing.T) {
	t.Parallel()
	s := inFolder(t)
	must(t, s.dir, "run", "flow.yaml", "--log", "arrivals.log", "--partitions", "3", "--run-id", "apart", "--until-n", "9", "--artifacts", "elsewhere", s.store[0], s.store[1])
	const absent = "the manifest is not in artifacts/checkpoints; was it kept with other --artifacts or --checkpoints?"
	out := refused(t, s.dir, 6, []string{"CHECKPOINT_CORRUPT", absent}, s.on("checkpoint verify apart")...).stdout
	if !strings.Contains(out, "not there") || strings.Contains(out, "damaged") {
		t.Errorf("%s", out)
	}
	refused(t, s.dir, 6, []string{"nothing was removed", absent}, s.on("checkpoint gc --apply")...)
	must(t, s.dir, s.onStore("checkpoint verify apart --artifacts elsewhere")...)
}

// TestCleanUpOnTheCommandLine: what nobody refers to is set aside once it is old, and removed once it has been aside for long; a dry run before
// each says so and does nothing.
func TestCleanUpOnTheCommandLine(t *testing.T) {
	t.Parallel()
	s := inFolder(t)
	blobs := filepath.Join(s.dir, "artifacts", "checkpoints", "sha256")
	const nobodys = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881" // the hash of "x"
	path := filepath.Join(blobs, nobodys)
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	clean := func(apply, field string, want float64) {
		t.Helper()
		doc := parse(t, must(t, s.dir, s.on("checkpoint gc --json "+apply)...))
		for _, f := range []string{"set_aside", "waiting", "purged", "brought_back"} {
			n := 0.0
			if f == field {
				n = want
			}
			if doc[f].(map[string]any)["blobs"] != n {
				t.Errorf("%s: %s %v, want %v", apply, f, doc[f], n)
			}
		}
		must(t, s.dir, s.on("checkpoint verify")...)
	}
	clean("--apply", "set_aside", 0) // it is young
	// All are old now; those that a checkpoint refers to stay.
	old := time.Now().Add(-2 * time.Hour)
	entries, err := os.ReadDir(blobs)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.Chtimes(filepath.Join(blobs, e.Name()), old, old); err != nil {
			t.Fatal(err)
		}
	}
	clean("", "set_aside", 1)
	clean("--apply", "set_aside", 1)
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("it stands still: %v", err)
	}
	clean("--apply", "waiting", 1)
	tickets, err := os.ReadDir(filepath.Join(blobs, "aside"))
	if err != nil || len(tickets) != 1 {
		t.Fatal(tickets, err)
	}
	parts := strings.Split(tickets[0].Name(), ".")
	earlier := fmt.Sprintf("%s.%d.%s", parts[0], old.UnixNano(), parts[2])
	if err := os.Rename(filepath.Join(blobs, "aside", tickets[0].Name()), filepath.Join(blobs, "aside", earlier)); err != nil {
		t.Fatal(err)
	}
	clean("", "purged", 1)
	if text := must(t, s.dir, s.on("checkpoint gc --apply")...); !strings.Contains(text, "1 blobs, 1 bytes: removed for good") {
		t.Errorf("%s", text)
	}
	clean("--apply", "purged", 0)
}
