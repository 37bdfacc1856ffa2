package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
)

// Extra holds the members of a JSON object that this version does not know,
// as they were read. A newer version wrote them, and gets them back.
type Extra map[string]json.RawMessage

// UnmarshalKeeping decodes the object in b into the struct that v points to,
// and gives the members that the struct has no field for. null is an error:
// a value that must be an object is not one.
func UnmarshalKeeping(b []byte, v any) (Extra, error) {
	if bytes.Equal(bytes.TrimSpace(b), []byte("null")) {
		return nil, errors.New("null where an object is wanted")
	}
	if err := json.Unmarshal(b, v); err != nil {
		return nil, err
	}
	extra := Extra{}
	if err := json.Unmarshal(b, &extra); err != nil {
		return nil, err
	}
	for key := range extra {
		if knows(reflect.TypeOf(v).Elem(), key) {
			delete(extra, key)
		}
	}
	if len(extra) == 0 {
		return nil, nil
	}
	return extra, nil
}

// knows reports whether encoding/json would decode key into a field of t.
func knows(t reflect.Type, key string) bool {
	for f := range t.Fields() {
		if !f.IsExported() {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			name = f.Name
		}
		if name != "-" && strings.EqualFold(name, key) {
			return true
		}
	}
	return false
}

// MarshalKeeping encodes v, which must be an object, and appends the extra
// members, by name. HTML is not escaped: what people read stays readable.
func MarshalKeeping(v any, extra Extra) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	out := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	names := make([]string, 0, len(extra))
	for name := range extra {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		key, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		out = out[:len(out)-1]
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, key...), ':'), extra[name]...)
		out = append(out, '}')
	}
	return out, nil
}

// TrimBOM drops the byte order mark that some editors put in front.
func TrimBOM(b []byte) []byte { return bytes.TrimPrefix(b, []byte("\xef\xbb\xbf")) }
