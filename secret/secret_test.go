package secret_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/weirstream/weir/secret"
)

const canary = "S3cr%S^t{canary}"

// Nothing that prints a secret, alone or inside of something, shows it.
func TestNeverShown(t *testing.T) {
	t.Parallel()
	s := secret.New(canary)
	holder := struct {
		Password secret.Text
		Pointer  *secret.Text
		hidden   secret.Text
	}{s, &s, s}
	var said []string
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T", "%10s"} {
		said = append(said, fmt.Sprintf(verb, s), fmt.Sprintf(verb, holder), fmt.Sprintf(verb, &s))
	}
	b, err := json.Marshal(holder)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "secret", s, "holder", holder)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "secret", s, "holder", holder)
	said = append(said, string(b), log.String(), fmt.Errorf("wrapped: %v", s).Error())
	for _, text := range said {
		if strings.Contains(text, canary) || strings.Contains(text, fmt.Sprintf("%x", canary)) || strings.Contains(text, fmt.Sprintf("%X", canary)) {
			t.Errorf("shown: %s", text)
		}
	}
	if s.Reveal() != canary || s.Empty() || !(secret.Text{}).Empty() {
		t.Error("the secret itself is lost")
	}
}
