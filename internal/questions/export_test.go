package questions

// CodeOf is the code that an id has where none is taken.
func CodeOf(id string) string { return code(id, nil) }
