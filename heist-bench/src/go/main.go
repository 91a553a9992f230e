// The Go side: the same problems, the same protocol.
//
// heistbench <problem> <n>, with GOMAXPROCS set. It warms up, says "ready", and
// answers every line of standard input with a round: nanoseconds or bytes as
// whole numbers on a line.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	yields = 1000
	bursts = 30
	idle   = 2 * time.Millisecond
)

type problem struct {
	round func(n int) []int64
	// Whether a first round is thrown away.
	warmUp bool
}

var problems = map[string]problem{
	"spawn_join": {spawnJoin, true},
	"yield":      {yield, true},
	"burst":      {burst, true},
	"parked":     {parked, false},
	"spawned":    {spawned, false},
}

func main() {
	if len(os.Args) != 3 {
		fail("usage: heistbench <problem> <n>")
	}
	chosen, known := problems[os.Args[1]]
	n, err := strconv.Atoi(os.Args[2])
	if !known || err != nil || n < 1 {
		fail("no such problem: " + strings.Join(os.Args[1:], " "))
	}
	if chosen.warmUp {
		chosen.round(n)
	}
	fmt.Println("ready")
	for requests := bufio.NewScanner(os.Stdin); requests.Scan(); {
		samples := chosen.round(n)
		words := make([]string, len(samples))
		for i, sample := range samples {
			words[i] = strconv.FormatInt(sample, 10)
		}
		fmt.Println(strings.Join(words, " "))
	}
}

func fail(why string) {
	fmt.Fprintln(os.Stderr, why)
	os.Exit(1)
}

func spawnJoin(n int) []int64 {
	begin := time.Now()
	var all sync.WaitGroup
	all.Add(n)
	for i := 0; i < n; i++ {
		go all.Done()
	}
	all.Wait()
	return []int64{time.Since(begin).Nanoseconds()}
}

func yield(n int) []int64 {
	begin := time.Now()
	var all sync.WaitGroup
	all.Add(n)
	for i := 0; i < n; i++ {
		go func() {
			for j := 0; j < yields; j++ {
				runtime.Gosched()
			}
			all.Done()
		}()
	}
	all.Wait()
	return []int64{time.Since(begin).Nanoseconds()}
}

func burst(n int) []int64 {
	// A cache line for each.
	type times struct {
		spawned, began time.Duration
		_              [112]byte
	}
	tasks := make([]times, n)
	base := time.Now()
	latencies := make([]int64, 0, bursts*n)
	for i := 0; i < bursts; i++ {
		time.Sleep(idle)
		var all sync.WaitGroup
		all.Add(n)
		for j := range tasks {
			task := &tasks[j]
			task.spawned = time.Since(base)
			go func() {
				task.began = time.Since(base)
				all.Done()
			}()
		}
		all.Wait()
		for _, task := range tasks {
			latencies = append(latencies, int64(task.began-task.spawned))
		}
	}
	return latencies
}

// Goroutines that receive from a channel that nobody sends to.
func parked(n int) []int64 {
	never := make(chan struct{})
	var waiting atomic.Int64
	before := memory()
	for i := 0; i < n; i++ {
		go func() {
			waiting.Add(1)
			<-never
		}()
	}
	for waiting.Load() < int64(n) {
		time.Sleep(time.Millisecond)
	}
	// The last ones count before they wait.
	time.Sleep(50 * time.Millisecond)
	return growth(before)
}

// Go preempts the spawner after 10 ms, so some do get a turn. They then wait,
// and keep what they have.
func spawned(n int) []int64 {
	never := make(chan struct{})
	before := memory()
	for i := 0; i < n; i++ {
		go func() { <-never }()
	}
	return growth(before)
}

// Bytes of this process: resident, page tables.
func memory() [2]int64 {
	var size, resident int64
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		fail(err.Error())
	}
	if _, err := fmt.Sscan(string(statm), &size, &resident); err != nil {
		fail(err.Error())
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		fail(err.Error())
	}
	var tables int64
	for _, line := range strings.Split(string(status), "\n") {
		if rest, found := strings.CutPrefix(line, "VmPTE:"); found {
			fmt.Sscan(rest, &tables)
		}
	}
	return [2]int64{resident * int64(os.Getpagesize()), tables << 10}
}

func growth(before [2]int64) []int64 {
	after := memory()
	return []int64{max(0, after[0]-before[0]), max(0, after[1]-before[1])}
}
