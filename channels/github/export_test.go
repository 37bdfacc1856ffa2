package github

// CommentRef is the ref of a comment.
func CommentRef(id int64) string { return commentRef(id) }
