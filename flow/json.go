package flow

import (
	"fmt"

	"github.com/weirstream/weir/record"
)

// jsonReader builds nodes from valid JSON. JSON is read by itself and not as YAML, because their strings differ: "\/" and
// surrogate pairs such as "\ud83d\ude00" are JSON and not YAML, and tabs may indent JSON.
type jsonReader struct {
	cursor
	report *report
}

// readJSON reads a document that is known to be valid JSON.
func readJSON(src []byte, r *report) *node {
	j := &jsonReader{cursor: cursor{src: src, pos: pos{1, 1}}, report: r}
	return j.value("", 0)
}

// skip goes on over blanks and the given separator.
func (j *jsonReader) skip(separator byte) {
	for j.i < len(j.src) {
		switch b := j.src[j.i]; b {
		case ' ', '\t', '\n', '\r', separator:
			j.step()
		default:
			return
		}
	}
}

// value reads one value, which stands depth levels below the document.
func (j *jsonReader) value(path string, depth int) *node {
	j.skip(' ')
	n := &node{at: j.pos}
	switch j.src[j.i] {
	case '{', '[':
		if depth == maxDepth {
			j.report.tooDeep(n.at, path)
			j.over()
			return n
		}
		j.composite(n, path, depth)
	case '"':
		n.value, n.shape = j.text(path)
	default:
		start := j.i
		j.to(j.literalEnd())
		n.value = string(j.src[start:j.i])
		if n.shape = plainShape(n.value); n.shape == text {
			n.shape = number // 1e400 and the like: valid JSON that is neither an integer nor a word
		}
	}
	return n
}

// composite reads an object or an array.
func (j *jsonReader) composite(n *node, path string, depth int) {
	open := j.src[j.i]
	j.step()
	if open == '[' {
		n.shape = list
		for j.skip(','); j.src[j.i] != ']'; j.skip(',') {
			n.items = append(n.items, j.value(fmt.Sprintf("%s[%d]", path, len(n.items)), depth+1))
		}
		j.step()
		return
	}
	n.shape = mapping
	for j.skip(','); j.src[j.i] != '}'; j.skip(',') {
		at := j.pos
		key, readable := j.text(path)
		j.skip(':')
		if readable == broken {
			j.over()
			continue
		}
		var value *node
		n.set(j.report, key, at, path, func(path string) *node {
			value = j.value(path, depth+1)
			return value
		})
		if value == nil {
			j.over()
		}
	}
	j.step()
}

// text reads a string.
func (j *jsonReader) text(path string) (string, shape) {
	start, at := j.i, j.pos
	j.to(j.stringEnd())
	v, err := record.Decode(j.src[start:j.i])
	if s, ok := v.(string); ok && err == nil {
		return s, text
	}
	j.report.add(at, path, "a string holds half of a surrogate pair", `write both halves, as in "\ud83d\ude00", or the character itself`)
	return "", broken
}

// stringEnd is the offset behind the string that starts here.
func (j *jsonReader) stringEnd() int {
	i := j.i + 1
	for j.src[i] != '"' {
		if j.src[i] == '\\' {
			i++
		}
		i++
	}
	return i + 1
}

// literalEnd is the offset behind the number or word that starts here.
func (j *jsonReader) literalEnd() int {
	i := j.i
	for i < len(j.src) {
		switch j.src[i] {
		case ',', ']', '}', ' ', '\t', '\n', '\r':
			return i
		}
		i++
	}
	return i
}

// over goes on behind the value that starts here, unread.
func (j *jsonReader) over() {
	for depth := 0; ; {
		j.skip(',')
		switch j.src[j.i] {
		case '{', '[':
			depth++
			j.step()
		case '}', ']':
			depth--
			j.step()
		case '"':
			j.to(j.stringEnd())
		case ':':
			j.step()
			continue
		default:
			j.to(j.literalEnd())
		}
		if depth == 0 {
			return
		}
	}
}
