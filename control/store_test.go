package control_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

func TestParseStoreSQLite(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"sqlite:weir.db":         "weir.db",
		"sqlite:/var/lib/w.db":   "/var/lib/w.db",
		"sqlite:./a/../b.db":     "b.db",
		"sqlite:a b%20#ü.db":     "a b%20#ü.db",
		"sqlite:with:colon.db":   "with:colon.db",
		"sqlite:user@example.db": "user@example.db",
	} {
		st, err := control.ParseStore(in)
		if err != nil || st.Kind != control.StoreSQLite || st.Path != want || st.String() != "sqlite:"+want {
			t.Errorf("ParseStore(%q) = %+v, %v; want path %q", in, st, err, want)
		}
	}
}

func TestParseStoreRefuses(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                         "no store is given",
		"sqlite:":                  "the path is missing",
		"sqlite::memory:":          "would not survive a restart",
		"sqlite://weir.db":         "not a URL",
		"sqlite:weir.db?mode=ro":   "no options",
		"sqlite:a\x00b":            "NUL",
		"sqlite:state/":            "folder",
		"weir.db":                  "no kind before a colon",
		"SQLite:weir.db":           `"SQLite" are not known`,
		"mysql://root:pw@db/w":     `"mysql" are not known`,
		"root:hunter2@db/w":        `"root" are not known`,
		"password=hunter2 host=db": "no kind before a colon",
		"a@hunter2:x":              "no kind before a colon",
	} {
		st, err := control.ParseStore(in)
		if !codes.Has(err, codes.StoreInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseStore(%q) = %v, want STORE_INVALID with %q", in, err, want)
			continue
		}
		if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "pw") {
			t.Errorf("ParseStore(%q) shows a secret: %v", in, err)
		}
		if st != (control.Store{}) {
			t.Errorf("ParseStore(%q) = %#v beside its error", in, st)
		}
	}
}

// A URL or connection string with "sqlite:" before it is refused without being shown.
func TestAMistypedSQLiteStoreNeverShowsASecret(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"sqlite:postgres://u:SEKRET@h/db":    "not a URL",
		"sqlite://u:SEKRET@h/db":             "not a URL",
		"sqlite://SEKRET@h/db":               "not a URL",
		"sqlite:///SEKRET":                   "not a URL",
		"sqlite:x?key=SEKRET":                "no options",
		"sqlite:u:SEKRET@h/db":               "user with a password",
		"sqlite:u:SEK@RET@h/":                "user with a password",
		"sqlite:/u:SEKRET\x00@h":             "NUL",
		"sqlite:host=db Password=SEKRET":     "user with a password",
		"sqlite:postgresql:u:SEKRET@h:5432":  "user with a password",
		"sqlite:file:SEKRET?_auth_pass=x":    "no options",
		"sqlite:mysql://SEKRET/db?mode=ro":   "not a URL",
		"sqlite:sqlite:postgres://SEKRET@h/": "not a URL",
	} {
		st, err := control.ParseStore(in)
		if !codes.Has(err, codes.StoreInvalid) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `"sqlite:***"`) {
			t.Errorf("ParseStore(%q) = %v, want STORE_INVALID of sqlite:*** with %q", in, err, want)
		}
		if shown := fmt.Sprintf("%v %#v", err, st); strings.Contains(shown, "SEK") || strings.Contains(shown, "RET") {
			t.Errorf("ParseStore(%q) shows a secret: %s", in, shown)
		}
		if st != (control.Store{}) {
			t.Errorf("ParseStore(%q) = %#v beside its error", in, st)
		}
	}
}

// Whatever way a store is printed, its password is not there; nor is it in the error.
func TestStoreNeverShowsASecret(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"postgres://joe:hunter2@db:5432/weir":                                     "postgres://joe:***@db:5432/weir",
		"postgresql://joe@db/weir":                                                "postgresql://joe@db/weir",
		"postgres://joe:hunter2@db/weir?sslmode=require&sslpassword=hunter2":      "postgres://joe:***@db/weir?sslmode=require&sslpassword=***",
		"postgres://db/weir?user=joe&password=hunter2":                            "postgres://db/weir?password=***&user=joe",
		"postgres://joe:hunter2%zz@db/weir":                                       "postgres://***",
		"postgres:joe:hunter2@db":                                                 "postgres://***",
		"postgres://joe:p@ss:hunter2@db/w":                                        "postgres://joe:***@db/w",
		"postgres://db/w?passfile=hunter2&options=-c%20x%3Dhunter2&password=a;b=": "",
	} {
		st, err := control.ParseStore(in)
		if err != nil {
			t.Errorf("ParseStore(%q): %v", in, err)
			continue
		}
		if st.Kind != control.StorePostgres {
			t.Errorf("ParseStore(%q).Kind = %q", in, st.Kind)
		}
		if want != "" && st.Redacted() != want {
			t.Errorf("ParseStore(%q).Redacted() = %q, want %q", in, st.Redacted(), want)
		}
		text, jerr := json.Marshal(st)
		if jerr != nil {
			t.Fatal(jerr)
		}
		for _, shown := range []string{
			st.String(), st.Redacted(), string(text),
			//lint:ignore S1025 what the verbs print is what is tested
			fmt.Sprint(st), fmt.Sprintf("%+v", st), fmt.Sprintf("%#v", st), fmt.Sprintf("%q", st), fmt.Sprintf("%s", &st),
		} {
			if strings.Contains(shown, "hunter2") || strings.Contains(shown, "a;b") {
				t.Errorf("a print of %q shows the secret: %s", in, shown)
			}
		}
	}
}
