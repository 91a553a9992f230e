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

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";

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
    ask(stream, "GET l", WRONG_TYPE);
    ask(stream, "RPOP l", "$1\r\n2\r\n");
    ask(stream, "LPOP l", "$2\r\n33\r\n");
    ask(stream, "BRPOP none l 1", "*2\r\n$1\r\nl\r\n$1\r\n9\r\n");
    ask(stream, "SET l text", "+OK\r\n");
    ask(stream, "LPUSH l x", WRONG_TYPE);
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
fn values_have_a_type() {
    let server = server();
    let stream = &server.connect();
    ask(stream, "SET t 1", "+OK\r\n");
    ask(stream, "RPUSH l 1", ":1\r\n");
    let of_texts = ["GET l", "INCR l", "INCRBY l 2"];
    let of_lists = ["LPUSH t x", "RPUSH t x", "LPOP t", "RPOP t", "LLEN t", "LRANGE t 0 -1"];
    let others = ["SORT t", "BLPOP t 0", "BRPOP none t 0"];
    for command in of_texts.iter().chain(&of_lists).chain(&others) {
        ask(stream, command, WRONG_TYPE);
    }
    ask(stream, "GET t", "$1\r\n1\r\n");
    ask(stream, "LRANGE l 0 -1", "*1\r\n$1\r\n1\r\n");
    // What fails leaves nothing behind.
    ask(stream, "INCRBY new x", "-ERR value is not an integer or out of range\r\n");
    ask(stream, "EXISTS new", ":0\r\n");
    // It may be set to another type.
    ask(stream, "SET l x", "+OK\r\n");
    ask(stream, "GET l", "$1\r\nx\r\n");
}

#[test]
fn ranges_of_any_size() {
    let server = server();
    let stream = &server.connect();
    let (all, max, min) = ("*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n", i64::MAX, i64::MIN);
    ask(stream, "RPUSH l a b c", ":3\r\n");
    ask(stream, &format!("LRANGE l 0 {max}"), all);
    ask(stream, &format!("LRANGE l {min} -1"), all);
    ask(stream, &format!("LRANGE l {min} {max}"), all);
    ask(stream, &format!("LRANGE l {max} {max}"), "*0\r\n");
    ask(stream, &format!("LRANGE l {min} {min}"), "*0\r\n");
    ask(stream, "LRANGE l 0 -4", "*0\r\n");
    ask(stream, "LRANGE l -2 -2", "*1\r\n$1\r\nb\r\n");
    ask(stream, "LRANGE none 0 -1", "*0\r\n");
}

/// What says nothing is not answered; what cannot be understood is, and ends it.
#[test]
fn the_protocol_and_its_limits() {
    let server = server();
    let stream = &server.connect();
    ask(stream, "\r\n  \r\n*0\r\n*-1\r\nPING", "+PONG\r\n");
    // In one piece: the empty line does not keep back the answer before it.
    ask(stream, "PING\r\n", "+PONG\r\n");
    let long = |begin: &str| [begin.as_bytes(), &[b'1'; 64 << 10]].concat();
    let too_long = [long(""), long("*")[..64 << 10].to_vec(), long("*1\r\n$")[..65540].to_vec()];
    let wrong = ["*x\r\n", "*1\r\nPING\r\n", "*1\r\n$-1\r\n"].map(Vec::from);
    for bytes in too_long.iter().chain(&wrong) {
        let mut stream = server.connect();
        stream.write_all(bytes).unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        assert!(said.starts_with("-ERR ") && said.ends_with("\r\n"), "{said}");
    }
    ask(stream, "PING", "+PONG\r\n");
}

/// The server stops answering when the client does not read, and keeps one answer or so.
#[test]
fn answers_that_nobody_reads_are_not_collected() {
    let server = server();
    let stream = &server.connect();
    let (big, times) = ("y".repeat(1_000_000), 300);
    ask(stream, &format!("*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n$1000000\r\n{big}"), "+OK\r\n");
    let answer = format!("$1000000\r\n{big}\r\n");
    (&*stream).write_all(&b"GET big\r\n".repeat(times)).unwrap();
    for _ in 0..times {
        assert!(exchange(stream, b"", answer.len()) == answer.as_bytes());
    }
    let peak = server.peak_memory();
    assert!(peak < 100, "{peak} MiB");
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
    // Those that have ended already are gone at once.
    for end in ["EXPIRE d 0", "EXPIRE d -1", "PEXPIRE d 0"] {
        ask(stream, "SET d x", "+OK\r\n");
        ask(stream, end, ":1\r\n");
        ask(stream, "GET d", "$-1\r\n");
        ask(stream, end, ":0\r\n");
    }
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
    ask(stream, "RPUSH queue 0 1", ":2\r\n");
    ask(stream, "RPUSH other 2", ":1\r\n");
    for (i, waiter) in waiters.iter().enumerate() {
        let key = if i < 2 { "queue" } else { "other" };
        let answer = format!("*2\r\n$5\r\n{key}\r\n$1\r\n{i}\r\n");
        assert_eq!(exchange(waiter, b"", answer.len()), answer.as_bytes());
    }
    ask(stream, "RPUSH queue left", ":1\r\n");
    ask(stream, "LPOP queue", "$4\r\nleft\r\n");
}

/// All is pushed before somebody is served, from the side that it asked for.
#[test]
fn a_blocking_pop_takes_from_what_was_pushed_together() {
    let server = server();
    let (left, right, stream) = (&server.connect(), &server.connect(), &server.connect());
    exchange(left, b"PING\r\nBLPOP q 0\r\n", 7);
    exchange(right, b"PING\r\nBRPOP q 0\r\n", 7);
    ask(stream, "LPUSH q a b c d", ":4\r\n");
    for (waiter, got) in [(left, "d"), (right, "a")] {
        let answer = format!("*2\r\n$1\r\nq\r\n$1\r\n{got}\r\n");
        assert_eq!(exchange(waiter, b"", answer.len()), answer.as_bytes());
    }
    ask(stream, "LRANGE q 0 -1", "*2\r\n$1\r\nc\r\n$1\r\nb\r\n");
}

/// Whoever watches a connection for its pop leaves with the pop.
#[test]
fn pops_that_give_up_leave_nothing_behind() {
    let server = server();
    ask(&server.connect(), "PING", "+PONG\r\n");
    let own = server.own_descriptors();
    let stream = &server.connect();
    let answers = exchange(stream, &b"BLPOP none 0.001\r\n".repeat(300), 5 * 300);
    assert_eq!(answers, b"*-1\r\n".repeat(300));
    assert!(server.settles_at(own + 1), "{own} and then {}", server.descriptors());
    // And it is read from as before.
    ask(stream, "RPUSH none 1", ":1\r\n");
    ask(stream, "BLPOP none 0", "*2\r\n$4\r\nnone\r\n$1\r\n1\r\n");
}

/// Whoever waits at two lists is given one element, however soon the other list has one.
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
    r.set("g", "x"); assert r.expire("g", 0) and r.get("g") is None
    r.delete("w"); assert r.rpush("w", "x", "y") == 2
    assert r.lrange("w", 0, 2**63 - 1) == [b"x", b"y"] == r.lrange("w", -2**63, -1)
    for wrong in (lambda: r.incr("w"), lambda: r.lpop("a"), lambda: r.llen("a"), lambda: r.sort("a")):
        try: wrong(); assert False
        except redis.ResponseError as e: assert str(e).startswith("WRONGTYPE"), e
    later = threading.Timer(0.1, lambda: redis.Redis(port=port, protocol=protocol).lpush("q", 1, 2, 3))
    later.start()
    assert list(r.blpop("q", 60)) == [b"q", b"3"]; later.join()
    assert r.lrange("q", 0, -1) == [b"2", b"1"]
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
