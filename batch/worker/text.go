package worker

import (
	"regexp"
	"strings"
	"unicode"

	"github.com/weirstream/weir/batch/catalog"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/record"
)

// Names is what the body of a batch run says: {"flow": NAME, "snapshot": NAME}.
type Names struct{ Flow, Snapshot string }

// ParseBody reads a body strictly. It fails with RequestInvalid, or NameInvalid for a name that cannot be registered.
func ParseBody(body []byte) (Names, error) {
	var n Names
	v, err := record.Decode(body)
	if err != nil {
		return n, codes.New(codes.RequestInvalid, "the body is not JSON: %w", err)
	}
	m, ok := v.(map[string]any)
	if !ok {
		return n, codes.New(codes.RequestInvalid, `the body is not an object of "flow" and "snapshot"`)
	}
	for key, value := range m {
		text, isText := value.(string)
		switch {
		case key != "flow" && key != "snapshot":
			return n, codes.New(codes.RequestInvalid, `the body has %.40q; a batch run has "flow" and "snapshot" alone`, key)
		case !isText:
			return n, codes.New(codes.RequestInvalid, "the body's %q is not a name", key)
		case key == "flow":
			n.Flow = text
		default:
			n.Snapshot = text
		}
	}
	if err := catalog.CheckName("flow", n.Flow); err != nil {
		return n, err
	}
	return n, catalog.CheckName("snapshot", n.Snapshot)
}

// Body is the canonical body of a batch run.
func (n Names) Body() ([]byte, error) {
	return record.AppendJSON(nil, map[string]any{"flow": n.Flow, "snapshot": n.Snapshot})
}

// places are file names with the folders that they stand in.
var places = regexp.MustCompile(`(^|[\s"'(=])/(?:[^\s/:"']+/)+`)

// message is the text of a failure, fit to be kept and shown: no folder of this machine, one screen at most.
func message(err error, scratch string) string {
	text := strings.ReplaceAll(err.Error(), scratch, "scratch")
	text = places.ReplaceAllString(text, "$1")
	text = strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && unicode.IsControl(r) {
			return '\ufffd'
		}
		return r
	}, text)
	return control.RunError(text)
}
