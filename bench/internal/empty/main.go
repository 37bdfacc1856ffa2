// Command empty does nothing: what a process costs before it has done anything.
package main

func main() {}
