package record

// Canonical reads exactly one JSON document, strictly, and returns its FINAZ_JSON_V1 bytes. The error is a *SyntaxError.
func Canonical(src []byte) ([]byte, error) {
	v, err := Decode(src)
	if err != nil {
		return nil, err
	}
	return AppendJSON(nil, v)
}
