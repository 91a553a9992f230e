// The Go side: the same problems, the same protocol.
//
// heistbench <problem> <n>, with GOMAXPROCS set. It warms up, says "ready", and
// answers every line of standard input with a round: nanoseconds or bytes as
// whole numbers on a line.
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	yields = 1000
	bursts = 30
	idle   = 2 * time.Millisecond

	capacity   = 128
	sides      = 8
	ringTasks  = 503
	mutexTasks = 100
	channels   = 4
	longest    = 200
	busy       = 5 * time.Millisecond
	computing  = 50 * time.Microsecond
	children   = 10

	// A goroutine for each fork: a part of the work will do.
	lessArgument = 6
	lessNodes    = 16
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

	"pingpong":          {pingpong, true},
	"pingpong_locked":   {pingpongLocked, true},
	"buffered":          {buffered, true},
	"many":              {many, true},
	"ring":              {ring, true},
	"mutex":             {mutex, true},
	"select":            {func(n int) []int64 { return selecting(n, capacity) }, true},
	"select_unbuffered": {func(n int) []int64 { return selecting(n, 0) }, true},
	"sleep":             {sleep, true},
	"timer":             {timer, true},
	"wake_busy":         {func(n int) []int64 { return wake(n, 0, busy) }, true},
	"wake_waiting":      {func(n int) []int64 { return wake(n, computing, 0) }, true},
	"lateness":          {func(n int) []int64 { late, _ := lateness(n); return late }, true},
	"lateness_work":     {func(n int) []int64 { _, step := lateness(n); return []int64{step} }, true},
	"blockers":          {blockers, true},
	"blockers_ticker":   {blockersTicker, true},
	"skynet":            {skynet, true},
	"fib":               {fibonacci, true},
	"tree":              {tree, true},
	"echo":              {echo, true},
	"connections":       {connections, false},
	"http":              {http, true},
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

func pingpongLocked(n int) []int64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return pingpong(n)
}

func pingpong(n int) []int64 {
	ping, pong := make(chan int), make(chan int)
	go func() {
		for ball := range ping {
			pong <- ball
		}
	}()
	begin := time.Now()
	for ball := 0; ball < n; ball++ {
		ping <- ball
		check(<-pong, ball)
	}
	nanos := time.Since(begin).Nanoseconds()
	close(ping)
	return []int64{nanos}
}

func buffered(n int) []int64 {
	begin := time.Now()
	messages := make(chan int, capacity)
	go func() {
		for i := 0; i < n; i++ {
			messages <- i
		}
		close(messages)
	}()
	received := 0
	for message := range messages {
		received += message
	}
	check(received, n*(n-1)/2)
	return []int64{time.Since(begin).Nanoseconds()}
}

func many(n int) []int64 {
	begin := time.Now()
	share := n / sides
	messages := make(chan int, capacity)
	var producers, consumers sync.WaitGroup
	producers.Add(sides)
	consumers.Add(sides)
	var received atomic.Int64
	for i := 0; i < sides; i++ {
		go func() {
			for j := 0; j < share; j++ {
				messages <- j
			}
			producers.Done()
		}()
		go func() {
			sum := 0
			for message := range messages {
				sum += message
			}
			received.Add(int64(sum))
			consumers.Done()
		}()
	}
	producers.Wait()
	close(messages)
	consumers.Wait()
	check(int(received.Load()), sides*(share*(share-1)/2))
	return []int64{time.Since(begin).Nanoseconds()}
}

func ring(laps int) []int64 {
	first := make(chan int)
	last := first
	for i := 1; i < ringTasks; i++ {
		previous, next := last, make(chan int)
		go func() {
			for token := range previous {
				next <- token
			}
			close(next)
		}()
		last = next
	}
	begin := time.Now()
	for lap := 0; lap < laps; lap++ {
		first <- lap
		check(<-last, lap)
	}
	nanos := time.Since(begin).Nanoseconds()
	close(first)
	return []int64{nanos}
}

func mutex(n int) []int64 {
	begin := time.Now()
	share := n / mutexTasks
	var lock sync.Mutex
	counter := 0
	var all sync.WaitGroup
	all.Add(mutexTasks)
	for i := 0; i < mutexTasks; i++ {
		go func() {
			for j := 0; j < share; j++ {
				lock.Lock()
				counter++
				lock.Unlock()
			}
			all.Done()
		}()
	}
	all.Wait()
	check(counter, mutexTasks*share)
	return []int64{time.Since(begin).Nanoseconds()}
}

func selecting(n, capacity int) []int64 {
	begin := time.Now()
	share := n / channels
	var all [channels]chan int
	for i := range all {
		messages := make(chan int, capacity)
		all[i] = messages
		go func() {
			for j := 0; j < share; j++ {
				messages <- j
			}
		}()
	}
	a, b, c, d := all[0], all[1], all[2], all[3]
	received := 0
	for i := 0; i < channels*share; i++ {
		select {
		case message := <-a:
			received += message
		case message := <-b:
			received += message
		case message := <-c:
			received += message
		case message := <-d:
			received += message
		}
	}
	check(received, channels*(share*(share-1)/2))
	return []int64{time.Since(begin).Nanoseconds()}
}

// Nanoseconds on the wall, and of the CPUs.
func sleep(n int) []int64 {
	begin, before := time.Now(), cpuTime()
	var all sync.WaitGroup
	all.Add(n)
	for i := 0; i < n; i++ {
		duration := time.Duration(1+i%longest) * time.Millisecond
		go func() {
			time.Sleep(duration)
			all.Done()
		}()
	}
	all.Wait()
	return []int64{time.Since(begin).Nanoseconds(), cpuTime() - before}
}

func timer(n int) []int64 {
	begin := time.Now()
	for i := 0; i < n; i++ {
		timer := time.AfterFunc(time.Minute, func() { fail("it was stopped") })
		if !timer.Stop() {
			fail("it had not fired")
		}
	}
	return []int64{time.Since(begin).Nanoseconds()}
}

// The message is when it was sent; the answer is how long it took.
func wake(n int, before, after time.Duration) []int64 {
	base := time.Now()
	compute := func(duration time.Duration) {
		// Or nothing would be two readings of the clock.
		if duration == 0 {
			return
		}
		for end := time.Since(base) + duration; time.Since(base) < end; {
		}
	}
	messages, answers := make(chan time.Duration, 1), make(chan time.Duration, 1)
	go func() {
		for sent := range messages {
			answers <- time.Since(base) - sent
		}
	}()
	latencies := make([]int64, 0, n)
	for i := 0; i < n; i++ {
		compute(before)
		messages <- time.Since(base)
		compute(after)
		latencies = append(latencies, int64(<-answers))
	}
	close(messages)
	return latencies
}

func skynet(n int) []int64 {
	begin := time.Now()
	up := make(chan int)
	go node(up, 0, n)
	check(<-up, n*(n-1)/2)
	return []int64{time.Since(begin).Nanoseconds()}
}

func node(up chan<- int, begin, end int) {
	if end-begin == 1 {
		up <- begin
		return
	}
	share := (end - begin + children - 1) / children
	values, count := make(chan int), 0
	for ; begin < end; begin += share {
		go node(values, begin, min(end, begin+share))
		count++
	}
	sum := 0
	for ; count > 0; count-- {
		sum += <-values
	}
	up <- sum
}

// How many forks the Fibonacci number of n takes.
func forksOf(n int) int {
	before, last := 0, 0
	for i := 2; i <= n; i++ {
		before, last = last, before+last+1
	}
	return last
}

func fibonacci(forks int) []int64 {
	n := 0
	for forksOf(n+1) <= forks {
		n++
	}
	part := max(2, n-lessArgument)
	a, b := 0, 1
	for i := 0; i < part; i++ {
		a, b = b, a+b
	}
	begin := time.Now()
	check(fib(part), a)
	took := time.Since(begin).Nanoseconds()
	return []int64{took * int64(max(1, forksOf(n))) / int64(forksOf(part))}
}

func fib(n int) int {
	if n < 2 {
		return n
	}
	second := make(chan int, 1)
	go func() { second <- fib(n - 2) }()
	first := fib(n - 1)
	return first + <-second
}

func tree(nodes int) []int64 {
	part := max(1, nodes/lessNodes)
	expected := sumTree(uint64(part), 1)
	begin := time.Now()
	sum := walkTree(uint64(part), 1)
	took := time.Since(begin).Nanoseconds()
	if sum != expected {
		fail("a wrong sum")
	}
	return []int64{took * int64(nodes) / int64(part)}
}

// A node with that many nodes in its tree: its value, and how many go to the left.
func treeNode(nodes, seed uint64) (value, left uint64) {
	hash := (seed ^ nodes) * 0x9e37_79b9_7f4a_7c15
	hash = (hash ^ hash>>32) * 0xd6e8_feb8_6659_fd93
	return hash, (nodes - 1) * (hash >> 57) / 128
}

func sumTree(nodes, seed uint64) uint64 {
	if nodes == 0 {
		return 0
	}
	value, left := treeNode(nodes, seed)
	return sumTree(left, value) + sumTree(nodes-1-left, ^value) + value
}

func walkTree(nodes, seed uint64) uint64 {
	if nodes == 0 {
		return 0
	}
	value, left := treeNode(nodes, seed)
	second := make(chan uint64, 1)
	go func() { second <- walkTree(nodes-1-left, ^value) }()
	first := walkTree(left, value)
	return first + <-second + value
}

func check(is, should int) {
	if is != should {
		fail(fmt.Sprintf("%d, and not %d", is, should))
	}
}

// Nanoseconds of CPU time of this process.
func cpuTime() int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		fail(err.Error())
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

// What the load is made of: a process of the program that runs this one.
func load(address net.Addr, connections, messages int) *exec.Cmd {
	return exec.Command(os.Getenv("HEIST_BENCH"), "__load", address.String(),
		strconv.Itoa(connections), strconv.Itoa(messages))
}

// Accepts connections for as long as the process lives.
func serve(handle func(net.Conn)) net.Addr {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fail(err.Error())
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				fail(err.Error())
			}
			go handle(conn)
		}
	}()
	return listener.Addr()
}

var echoServer = sync.OnceValue(func() net.Addr {
	return serve(func(conn net.Conn) {
		defer conn.Close()
		var buffer [1024]byte
		for {
			n, err := conn.Read(buffer[:])
			if n == 0 || err != nil {
				return
			}
			if _, err := conn.Write(buffer[:n]); err != nil {
				return
			}
		}
	})
})

func echo(n int) []int64 {
	address := echoServer()
	before := cpuTime()
	answer, err := load(address, 100, n).Output()
	if err != nil {
		fail(err.Error())
	}
	p99, err := strconv.ParseInt(strings.TrimSpace(string(answer)), 10, 64)
	if err != nil {
		fail(err.Error())
	}
	return []int64{cpuTime() - before, p99}
}

const httpAnswer = "HTTP/1.1 200 OK\r\nServer: bench\r\nContent-Type: text/plain\r\n" +
	"Content-Length: 13\r\n\r\nHello, World!"

// As in http.rs, but requests are not parsed: only their ends are looked for.
var httpServer = sync.OnceValue(func() net.Addr {
	return serve(func(conn net.Conn) {
		defer conn.Close()
		end := []byte("\r\n\r\n")
		var buffer [4096]byte
		filled := 0
		answers := make([]byte, 0, 4096)
		for {
			n, err := conn.Read(buffer[filled:])
			if n == 0 || err != nil {
				return
			}
			filled += n
			used := 0
			answers = answers[:0]
			for {
				at := bytes.Index(buffer[used:filled], end)
				if at < 0 {
					break
				}
				used += at + len(end)
				answers = append(answers, httpAnswer...)
			}
			copy(buffer[:], buffer[used:filled])
			filled -= used
			if _, err := conn.Write(answers); err != nil {
				return
			}
		}
	})
})

const wrkScript = `
function init() batch = wrk.format("GET", "/plaintext"):rep(DEPTH) end
function request() return batch end
function done(summary, latency)
  local e = summary.errors
  io.write(string.format("answers %d %d %d %d\n", summary.requests, summary.duration,
    latency:percentile(99), e.connect + e.read + e.write + e.status + e.timeout))
end
`

func http(depth int) []int64 {
	// A file, since each thread of wrk reads it anew.
	script, err := os.CreateTemp("", "heistbench*.lua")
	if err != nil {
		fail(err.Error())
	}
	defer os.Remove(script.Name())
	defer script.Close()
	fmt.Fprint(script, strings.ReplaceAll(wrkScript, "DEPTH", strconv.Itoa(depth)))
	wrk := exec.Command("wrk", "-t1", "-c64", "-d1", "-s", script.Name(),
		"http://"+httpServer().String()+"/plaintext")
	output, err := wrk.Output()
	if err != nil {
		fail(err.Error())
	}
	var requests, micros, p99, errors int64
	at := strings.Index(string(output), "answers ")
	if at < 0 {
		fail("wrk said: " + string(output))
	}
	fmt.Sscanf(string(output)[at:], "answers %d %d %d %d", &requests, &micros, &p99, &errors)
	if requests == 0 || errors != 0 {
		fail("wrk said: " + string(output))
	}
	if depth > 1 {
		// Of requests that are sent at once wrk does not know how long each took.
		return []int64{micros * 1000 / requests}
	}
	return []int64{micros * 1000 / requests, p99 * 1000}
}

func connections(n int) []int64 {
	var waiting atomic.Int64
	address := serve(func(conn net.Conn) {
		waiting.Add(1)
		var buffer [64]byte
		conn.Read(buffer[:])
	})
	before := memory()
	idle := load(address, n, 0)
	// It ends when this process does.
	if _, err := idle.StdinPipe(); err != nil {
		fail(err.Error())
	}
	if err := idle.Start(); err != nil {
		fail(err.Error())
	}
	for waiting.Load() < int64(n) {
		time.Sleep(time.Millisecond)
	}
	// The last ones count before they wait.
	time.Sleep(50 * time.Millisecond)
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

// Some compute; how late is a sleeper, and how long do all procs take for 1,000 steps?
func lateness(n int) ([]int64, int64) {
	procs := runtime.GOMAXPROCS(0)
	var stop atomic.Bool
	var steps, sink atomic.Uint64
	var all sync.WaitGroup
	all.Add(procs)
	for i := 0; i < procs; i++ {
		go func() {
			defer all.Done()
			x, mine := uint64(1), uint64(0)
			for !stop.Load() {
				for i := 0; i < 1000; i++ {
					x = (x<<7 | x>>57) ^ 0x9e3779b9
				}
				mine += 1000
			}
			sink.Store(x)
			steps.Add(mine)
		}()
	}
	begin := time.Now()
	late := make([]int64, n)
	for i := range late {
		due := time.Now().Add(time.Millisecond)
		time.Sleep(time.Millisecond)
		late[i] = max(0, time.Since(due).Nanoseconds())
	}
	stop.Store(true)
	took := time.Since(begin)
	all.Wait()
	return late, int64(float64(took.Nanoseconds()) * float64(procs) * 1000 / float64(max(1, steps.Load())))
}

func startBlockers(n int) *sync.WaitGroup {
	all := new(sync.WaitGroup)
	all.Add(n)
	for i := 0; i < n; i++ {
		go func() {
			defer all.Done()
			for i := 0; i < 5; i++ {
				left := syscall.NsecToTimespec(int64(20 * time.Millisecond))
				for syscall.Nanosleep(&left, &left) != nil {
				}
			}
		}()
	}
	return all
}

func blockers(n int) []int64 {
	begin := time.Now()
	startBlockers(n).Wait()
	return []int64{time.Since(begin).Nanoseconds()}
}

func blockersTicker(n int) []int64 {
	all := startBlockers(n)
	var over atomic.Bool
	go func() {
		all.Wait()
		over.Store(true)
	}()
	var late []int64
	for !over.Load() {
		due := time.Now().Add(time.Millisecond)
		time.Sleep(time.Millisecond)
		late = append(late, max(0, time.Since(due).Nanoseconds()))
	}
	return late
}
