package channelstest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// call calls a method of the fake and gives the decoded answer.
func (s *Slack) call(t *testing.T, method string, params ...string) (status int, answer map[string]any) {
	t.Helper()
	form := url.Values{"token": {SlackToken}, "channel": {SlackRoom}}
	for i := 0; i < len(params); i += 2 {
		form.Set(params[i], params[i+1])
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.PostForm(s.APIURL()+method, form)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	return resp.StatusCode, answer
}

func TestSlack_Limits(t *testing.T) {
	section := func(text string) string {
		return fmt.Sprintf(`{"type":"section","text":{"type":"mrkdwn","text":%q}}`, text)
	}
	sections := func(n int, text string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(section(text)+",", n), ",") + "]"
	}
	x := func(n int) string { return strings.Repeat("x", n) }
	for name, tt := range map[string]struct {
		params []string
		want   string
	}{
		"text":               {[]string{"text", x(40_000)}, ""},
		"long text":          {[]string{"text", x(40_001)}, "msg_too_long"},
		"no text":            {nil, "no_text"},
		"blocks alone":       {[]string{"blocks", sections(50, "x")}, ""},
		"too many blocks":    {[]string{"blocks", sections(51, "x")}, "invalid_blocks"},
		"full object":        {[]string{"blocks", sections(1, x(3000))}, ""},
		"long object":        {[]string{"blocks", sections(1, x(3001))}, "invalid_blocks"},
		"empty object":       {[]string{"blocks", sections(1, "")}, "invalid_blocks"},
		"sum of blocks":      {[]string{"blocks", sections(5, x(2800))}, "msg_blocks_too_long"},
		"blocks are no JSON": {[]string{"blocks", "?"}, "invalid_blocks_format"},
		"metadata":           {[]string{"text", "x", "metadata", `{"event_type":"e","event_payload":{"id":"1"}}`}, ""},
		"much metadata":      {[]string{"text", "x", "metadata", x(9000)}, "metadata_too_large"},
		"strange metadata":   {[]string{"text", "x", "metadata", "null"}, "invalid_metadata_format"},
		"no token":           {[]string{"text", "x", "token", ""}, "not_authed"},
		"wrong token":        {[]string{"text", "x", "token", "xoxb-wrong"}, "invalid_auth"},
		"no such room":       {[]string{"text", "x", "channel", "C9"}, "channel_not_found"},
	} {
		t.Run(name, func(t *testing.T) {
			_, answer := NewSlack(t).call(t, "chat.postMessage", tt.params...)
			if code, _ := answer["error"].(string); code != tt.want || answer["ok"] != (tt.want == "") {
				t.Errorf("answer %v, want error %q", answer, tt.want)
			}
		})
	}
}

func TestSlack_OneMessageASecond(t *testing.T) {
	s := NewSlack(t)
	s.AddRoom("C2")
	for _, tt := range []struct {
		room string
		want int
	}{{SlackRoom, 200}, {SlackRoom, 429}, {"C2", 200}} {
		if status, answer := s.call(t, "chat.postMessage", "text", "x", "channel", tt.room); status != tt.want {
			t.Errorf("status %d with %v, want %d", status, answer, tt.want)
		}
	}
}

func TestSlack_Reading(t *testing.T) {
	s := NewSlack(t)
	s.SetPace(0)
	const meta = `{"event_type":"e","event_payload":{"id":"1"}}`
	var ts []string
	for i := range 5 {
		params := []string{"text", fmt.Sprint(i), "metadata", meta}
		if i >= 3 {
			params = append(params, "thread_ts", ts[0])
		}
		_, answer := s.call(t, "chat.postMessage", params...)
		ts = append(ts, answer["ts"].(string))
	}
	texts := func(answer map[string]any) (all string) {
		for _, m := range answer["messages"].([]any) {
			all += m.(map[string]any)["text"].(string)
		}
		return all
	}
	for _, tt := range []struct {
		method string
		params []string
		want   string
		more   bool
	}{
		{"conversations.history", nil, "210", false},
		{"conversations.history", []string{"limit", "2"}, "21", true},
		{"conversations.history", []string{"limit", "2", "cursor", "2"}, "0", false},
		{"conversations.history", []string{"latest", ts[1], "oldest", ts[1], "inclusive", "1"}, "1", false},
		{"conversations.history", []string{"latest", ts[1], "oldest", ts[1]}, "", false},
		{"conversations.history", []string{"oldest", ts[0]}, "21", false},
		{"conversations.replies", []string{"ts", ts[0]}, "034", false},
		{"conversations.replies", []string{"ts", ts[4]}, "4", false},
		{"conversations.replies", []string{"ts", ts[1]}, "1", false},
	} {
		_, answer := s.call(t, tt.method, tt.params...)
		if got := texts(answer); got != tt.want || answer["has_more"] != tt.more {
			t.Errorf("%s %v: %q, %v, want %q, %v", tt.method, tt.params, got, answer["has_more"], tt.want, tt.more)
		}
	}
	if _, answer := s.call(t, "conversations.replies", "ts", "1.1"); answer["error"] != "thread_not_found" {
		t.Errorf("a thread that is not there: %v", answer)
	}
	for _, method := range []string{"conversations.history", "conversations.replies"} {
		_, bare := s.call(t, method, "ts", ts[0])
		_, full := s.call(t, method, "ts", ts[0], "include_all_metadata", "1")
		if b := fmt.Sprint(bare); strings.Contains(b, "event_payload") || !strings.Contains(b, "event_type") ||
			!strings.Contains(fmt.Sprint(full), "event_payload") {
			t.Errorf("%s: metadata unasked %v, asked %v", method, bare, full)
		}
	}
	if m := s.Messages(SlackRoom)[0].Metadata; m.Payload["id"] != "1" {
		t.Errorf("reading changed the metadata: %+v", m)
	}
	if _, answer := s.call(t, "auth.test"); answer["bot_id"] != "B1" {
		t.Errorf("auth.test: %v", answer)
	}
}

func TestSlack_DeletedRootUnthreadsTheReply(t *testing.T) {
	s := NewSlack(t)
	s.SetPace(0)
	_, root := s.call(t, "chat.postMessage", "text", "x")
	s.Delete(SlackRoom, root["ts"].(string))
	_, reply := s.call(t, "chat.postMessage", "text", "x", "thread_ts", root["ts"].(string))
	if _, threaded := reply["message"].(map[string]any)["thread_ts"]; threaded || reply["ok"] != true {
		t.Errorf("reply %v, want one without thread_ts", reply)
	}
}

func TestSlack_Faults(t *testing.T) {
	s := NewSlack(t)
	s.SetPace(0)
	s.Queue(SlackError("is_archived"), s.ByteByByte(time.Microsecond), s.StoreThen(Answer(500, "{}")))
	if _, answer := s.call(t, "chat.postMessage", "text", "1"); answer["error"] != "is_archived" {
		t.Errorf("answer %v", answer)
	}
	if _, answer := s.call(t, "chat.postMessage", "text", "2"); answer["ok"] != true {
		t.Errorf("answer %v", answer)
	}
	if status, _ := s.call(t, "chat.postMessage", "text", "3"); status != 500 {
		t.Errorf("status %d", status)
	}
	if m := s.Messages(SlackRoom); len(m) != 2 || m[1].Text != "3" {
		t.Errorf("messages %+v, want 2 and 3", m)
	}
	if forms := s.Forms("chat.postMessage"); len(forms) != 3 || forms[2].Get("text") != "3" {
		t.Errorf("forms %v", forms)
	}
}

func TestSlack_ReadingWithout(t *testing.T) {
	s := NewSlack(t)
	now := time.Now()
	var ts []string
	for i := range 4 {
		m := SlackMessage{User: "U9", Text: fmt.Sprint(i), TS: SlackTS(now.Add(time.Duration(i-4) * time.Hour))}
		if i == 3 {
			m.ThreadTS = ts[2]
		}
		ts = append(ts, s.Plant(SlackRoom, m).TS)
	}
	read := func(method string, params ...string) string {
		t.Helper()
		_, answer := s.call(t, method, params...)
		if code, failed := answer["error"]; failed {
			return fmt.Sprint(code, " ", answer["needed"])
		}
		var all strings.Builder
		for _, m := range answer["messages"].([]any) {
			all.WriteString(m.(map[string]any)["text"].(string))
		}
		if answer["is_limited"] == true {
			all.WriteString(" limited")
		}
		return all.String()
	}
	want := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("read %q, want %q", got, want)
		}
	}
	want(read("conversations.history"), "210")
	want(read("conversations.replies", "ts", ts[2], "oldest", ts[3], "inclusive", "1"), "23")
	want(read("conversations.replies", "ts", ts[2], "latest", ts[2]), "")
	s.HideBefore(now.Add(-150 * time.Minute))
	want(read("conversations.history"), "2 limited")
	want(read("conversations.history", "latest", ts[2]), " limited")
	want(read("conversations.replies", "ts", ts[0]), "thread_not_found <nil>")
	s.HideBefore(now.Add(-24 * time.Hour))
	want(read("conversations.history"), "210")
	s.HideBefore(time.Time{})
	s.LimitPages(1)
	want(read("conversations.history", "limit", "200"), "2")
	want(read("conversations.history", "limit", "200", "cursor", "2"), "0")
	s.LimitPages(0)
	s.Disguise(func(m *SlackMessage) { m.Text = "x" })
	want(read("conversations.history"), "xxx")
	s.DenyReading("channels:history")
	want(read("conversations.history"), "missing_scope channels:history")
	want(read("conversations.replies", "ts", ts[2]), "missing_scope channels:history")
	if status, answer := s.call(t, "chat.postMessage", "text", "x"); answer["ok"] != true {
		t.Errorf("posting needs no scope for reading: %d, %v", status, answer)
	}
	s.DenyReading("")
	if got := s.Messages(SlackRoom)[0]; got.Text != "0" || got.User != "U9" {
		t.Errorf("message %+v, want what was planted", got)
	}
}
