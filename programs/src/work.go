// Go makes its own system calls, so that the library sees none of them: a program that has to run unmanaged, and well.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
)

func main() {
	m := map[int]string{}
	for i := 0; i < 500000; i++ {
		m[i] = fmt.Sprint(i)
	}
	runtime.GC()
	fmt.Println(len(m))
	c := make(chan int)
	for n := 0; n < 8; n++ {
		go func() { c <- len(make([]byte, 1<<24)) }()
	}
	sum := 0
	for n := 0; n < 8; n++ {
		sum += <-c
	}
	fmt.Println(sum)
	out, _ := exec.Command("echo", "child").Output()
	fmt.Print(string(out))
	os.Exit(2)
}
