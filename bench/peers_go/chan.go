// The same hop through a buffered Go channel: one goroutine sends, another receives; nanoseconds per item.
//
//	chan [ITEMS [CAPACITY]]
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

func main() {
	items, capacity := 20000000, 1024
	if len(os.Args) > 1 {
		items, _ = strconv.Atoi(os.Args[1])
	}
	if len(os.Args) > 2 {
		capacity, _ = strconv.Atoi(os.Args[2])
	}
	ch := make(chan uintptr, capacity)
	done := make(chan uint64)
	go func() {
		var sum uint64
		for v := range ch {
			sum += uint64(v)
		}
		done <- sum
	}()
	start := time.Now()
	for i := 1; i <= items; i++ {
		ch <- uintptr(i)
	}
	close(ch)
	sum := <-done
	took := time.Since(start)
	if sum != uint64(items)*(uint64(items)+1)/2 {
		panic("items were lost")
	}
	fmt.Printf("%.2f ns per item, batch 1, capacity %d\n", float64(took.Nanoseconds())/float64(items), capacity)
}
