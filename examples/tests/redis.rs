//! The Redis server: byte by byte, under a client library and under redis-benchmark.

mod common;

use common::*;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn server() -> Server {
    Server::start(env!("CARGO_BIN_EXE_redis"), &[])
}

/// Sends a command, and checks what comes back.
#[track_caller]
fn ask(stream: &TcpStream, command: &str, answer: &str) {
    let said = exchange(stream, format!("{command}\r\n").as_bytes(), answer.len());
    assert_eq!(String::from_utf8(said).unwrap(), answer, "{command}");
}

#[test]
fn commands_and_answers() {
    let server = server();
    let stream = &server.connect();
    ask(stream, "PING", "+PONG\r\n");
    ask(stream, "*2\r\n$4\r\necho\r\n$2\r\nhi", "$2\r\nhi\r\n");
    ask(stream, "SET a 5", "+OK\r\n");
    ask(stream, "get a", "$1\r\n5\r\n");
    ask(stream, "INCR a", ":6\r\n");
    ask(stream, "INCRBY a -10", ":-4\r\n");
    ask(stream, "INCR b", ":1\r\n");
    ask(stream, "GET missing", "$-1\r\n");
    ask(stream, "EXISTS a b c", ":2\r\n");
    ask(stream, "DEL a b c", ":2\r\n");
    ask(stream, "RPUSH l 10 9 2", ":3\r\n");
    ask(stream, "LPUSH l 33", ":4\r\n");
    ask(stream, "LLEN l", ":4\r\n");
    ask(stream, "LRANGE l 1 -2", "*2\r\n$2\r\n10\r\n$1\r\n9\r\n");
    ask(stream, "LRANGE l 5 9", "*0\r\n");
    ask(stream, "SORT l", "*4\r\n$1\r\n2\r\n$1\r\n9\r\n$2\r\n10\r\n$2\r\n33\r\n");
    ask(stream, "SORT l ALPHA DESC", "*4\r\n$1\r\n9\r\n$2\r\n33\r\n$1\r\n2\r\n$2\r\n10\r\n");
    ask(stream, "GET l", "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n");
    ask(stream, "RPOP l", "$1\r\n2\r\n");
    ask(stream, "LPOP l", "$2\r\n33\r\n");
    ask(stream, "BRPOP none l 1", "*2\r\n$1\r\nl\r\n$1\r\n9\r\n");
    ask(stream, "SET l text", "+OK\r\n");
    ask(
        stream,
        "LPUSH l x",
        "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
    );
    ask(stream, "NOSUCH", "-ERR unknown command or arguments: NOSUCH\r\n");
    ask(stream, "PTTL l", ":-1\r\n");
    ask(stream, "TTL missing", ":-2\r\n");
    // Four digits, however slow the machine.
    ask(stream, "EXPIRE l 5000", ":1\r\n");
    let left = String::from_utf8(exchange(stream, b"TTL l\r\n", 7)).unwrap();
    assert!((1000..=5000).contains(&left[1..5].parse::<u32>().unwrap()), "{left}");
    // Many at once, answered in order.
    let many = exchange(stream, &b"INCR n\r\n".repeat(100), 9 * 4 + 91 * 5 + 1);
    assert!(many.starts_with(b":1\r\n:2\r\n") && many.ends_with(b":99\r\n:100\r\n"));
}

#[test]
fn keys_end() {
    let server = server();
    let stream = &server.connect();
    ask(stream, "SET a x PX 30", "+OK\r\n");
    ask(stream, "SET b x EX 1000", "+OK\r\n");
    ask(stream, "PEXPIRE b 30", ":1\r\n");
    ask(stream, "SET c x PX 30", "+OK\r\n");
    ask(stream, "SET c again", "+OK\r\n");
    ask(stream, "BLPOP nothing 0.1", "*-1\r\n");
    // Each has a timer of its own, which may be later than that of the pop.
    assert!((0..2000).any(|_| {
        std::thread::sleep(Duration::from_millis(5));
        exchange(stream, b"EXISTS a b\r\n", 4) == b":0\r\n"
    }));
    ask(stream, "GET c", "$5\r\nagain\r\n");
}

#[test]
fn blocking_pops_are_served_in_order() {
    let server = server();
    let waiters: Vec<TcpStream> = (0..3)
        .map(|_| {
            let stream = server.connect();
            // They come together, so the answer to PING goes out when it is in the queues.
            exchange(&stream, b"PING\r\nBLPOP other queue 60\r\n", 7);
            stream
        })
        .collect();
    // One that has hung up is not served. It listens on, to hear when the server knows.
    let mut gone = server.connect();
    exchange(&gone, b"PING\r\nBLPOP queue 0\r\n", 7);
    gone.shutdown(Shutdown::Write).unwrap();
    let mut last = String::new();
    gone.read_to_string(&mut last).unwrap();
    assert_eq!(last, "*-1\r\n");
    let stream = &server.connect();
    ask(stream, "RPUSH queue 0 1", ":1\r\n");
    ask(stream, "RPUSH other 2", ":1\r\n");
    for (i, waiter) in waiters.iter().enumerate() {
        let key = if i < 2 { "queue" } else { "other" };
        let answer = format!("*2\r\n$5\r\n{key}\r\n$1\r\n{i}\r\n");
        assert_eq!(exchange(waiter, b"", answer.len()), answer.as_bytes());
    }
    ask(stream, "RPUSH queue left", ":1\r\n");
    ask(stream, "LPOP queue", "$4\r\nleft\r\n");
}

/// Whoever waits at two lists may be given one of each, if the second comes while it leaves.
#[test]
fn what_is_pushed_is_popped_once() {
    let server = server();
    let (waiter, stream) = (&server.connect(), &server.connect());
    for _ in 0..1000 {
        exchange(waiter, b"PING\r\nBLPOP a b 60\r\n", 7);
        ask(stream, "RPUSH a 1", ":1\r\n");
        ask(stream, "RPUSH b 2", ":1\r\n");
        let answer = b"*2\r\n$1\r\na\r\n$1\r\n1\r\n";
        assert_eq!(exchange(waiter, b"", answer.len()), answer);
        ask(stream, "LPOP b", "$1\r\n2\r\n");
    }
}

#[test]
fn what_is_published_is_heard() {
    let server = server();
    let listeners: Vec<TcpStream> = (0..3)
        .map(|_| {
            let stream = server.connect();
            ask(&stream, "SUBSCRIBE news", "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n");
            stream
        })
        .collect();
    let stream = &server.connect();
    ask(stream, "PUBLISH news hello", ":3\r\n");
    for listener in &listeners {
        let message = b"*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$5\r\nhello\r\n";
        assert_eq!(exchange(listener, b"", message.len()), message);
    }
    let left = "*3\r\n$11\r\nunsubscribe\r\n$4\r\nnews\r\n:0\r\n";
    ask(&listeners[0], "UNSUBSCRIBE", left);
    ask(stream, "PUBLISH news again", ":2\r\n");
}

/// However busy the channel is: the first thing that a listener hears is that it listens.
#[test]
fn who_subscribes_is_told_before_it_hears_anything() {
    let server = server();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (server, over) = (&server, &over);
            scope.spawn(move || {
                let mut stream = server.connect();
                let mut answers = BufReader::new(stream.try_clone().unwrap()).lines();
                while !over.load(Ordering::Relaxed) {
                    stream.write_all(&b"PUBLISH news x\r\n".repeat(100)).unwrap();
                    assert!(answers.by_ref().take(100).all(|line| line.unwrap().starts_with(':')));
                }
            });
        }
        for _ in 0..200 {
            let said = "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n";
            let heard = exchange(&server.connect(), b"SUBSCRIBE news\r\n", said.len());
            if heard != said.as_bytes() {
                over.store(true, Ordering::Relaxed);
                panic!("{}", heard.escape_ascii());
            }
        }
        over.store(true, Ordering::Relaxed);
    });
}

/// Commands that block their threads and commands that never yield, more of them than
/// there are Ps; and another client that does not notice.
#[test]
fn those_who_block_and_those_who_spin_are_harmless() {
    let server = server();
    let mut busy: Vec<TcpStream> = Vec::new();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    for command in ["BLOCK 2000\r\n", "SPIN 2000\r\n"] {
        for _ in 0..2 * cpus {
            let mut stream = server.connect();
            stream.write_all(command.as_bytes()).unwrap();
            busy.push(stream);
        }
    }
    let begin = Instant::now();
    let stream = &server.connect();
    let mut asked = 0;
    while begin.elapsed() < Duration::from_millis(1500) {
        ask(stream, "PING", "+PONG\r\n");
        asked += 1;
    }
    // Without preemption it would be none.
    assert!(asked >= 10, "{asked} answers in 1.5 s");
    for stream in &mut busy {
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"+OK\r\n");
    }
}

#[test]
fn under_a_client_library() {
    if !has_module("redis") {
        return;
    }
    let server = server();
    let script = r#"
import sys, threading, time, redis
port = int(sys.argv[1])
for protocol in (2, 3):
    r = redis.Redis(port=port, protocol=protocol)
    r.delete("a", "l", "q")
    assert r.ping() and r.set("a", "1") and r.get("a") == b"1"
    assert r.incr("a") == 2 and r.incr("a", 5) == 7
    assert r.get("missing") is None
    assert r.rpush("l", 3, 1, 2) == 3
    assert r.lrange("l", 0, -1) == [b"3", b"1", b"2"]
    assert r.sort("l") == [b"1", b"2", b"3"]
    assert r.sort("l", desc=True, alpha=True) == [b"3", b"2", b"1"]
    assert r.lpop("l") == b"3" and r.rpop("l") == b"2" and r.llen("l") == 1
    assert list(r.blpop(["none", "l"], 1)) == [b"l", b"1"]
    assert r.blpop("none", 0.05) is None
    later = threading.Timer(0.1, lambda: redis.Redis(port=port, protocol=protocol).rpush("q", "v"))
    later.start()
    assert list(r.blpop(["none", "q"], 60)) == [b"q", b"v"]
    r.set("e", "x", px=20)
    assert any(r.get("e") is None or time.sleep(0.01) for _ in range(1000))
    r.set("t", "x", ex=100); assert 0 < r.ttl("t") <= 100 and r.exists("t") == 1
    p = r.pipeline(transaction=False)
    for i in range(100): p.set(f"k{i}", i)
    for i in range(100): p.get(f"k{i}")
    assert p.execute()[100:] == [str(i).encode() for i in range(100)]
    p = r.pubsub()
    p.subscribe("c")
    assert p.get_message(timeout=60)["type"] == "subscribe"
    assert r.publish("c", "hi") == 1
    assert p.get_message(timeout=60)["data"] == b"hi"
    p.close()
try:
    redis.Redis(port=port).execute_command("NOSUCH"); assert False
except redis.ResponseError: pass
print("well")
"#;
    assert_eq!(success("python3", &["-c", script, server.port()]), "well\n");
}

#[test]
fn under_redis_benchmark() {
    if !has("redis-benchmark") {
        return;
    }
    let server = server();
    let tests = "ping_inline,ping_mbulk,set,get,incr,lpush,rpush,lpop,rpop,lrange_100";
    for pipeline in ["1", "16"] {
        let args = ["-p", server.port(), "-n", "5000", "-P", pipeline, "-q", "-t", tests];
        let said = success("redis-benchmark", &args);
        assert_eq!(said.matches("requests per second").count(), 11, "{said}");
    }
}
