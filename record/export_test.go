package record

// Footprint is the number of keys and the bytes of text that a scanner keeps.
func (s *Scanner) Footprint() (keys, text int) { return len(s.keys), cap(s.text) }
