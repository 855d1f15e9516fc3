// A data race, for Go's race detector, which is ThreadSanitizer's runtime in a program without libc's allocator.
package main

import "fmt"

func main() {
	x, done := 0, make(chan bool)
	go func() { x++; done <- true }()
	x++
	<-done
	fmt.Println("end")
}
