//! Goroutines that wait for each other for ever.
//!
//! With no other thread in the process that could wake one of them, heist says
//! so, lists them and ends the process with code 2:
//!
//! ```text
//! cargo run -p heist --example deadlock
//! ```
//!
//! Arguments show the cases around it: `joined` (two that join each other's
//! friends), `rescued` (a plain thread wakes them in time), `late` (a plain
//! thread that could have, but ends), `blocked` and `call` (a goroutine that blocks its
//! thread wakes them when it returns), `locked` (one that waits with its thread does
//! not), `network` (another process wakes them), `centuries` (it only takes its time), `stopped`
//! (a ticker that does not tick any more).

use heist::thread;
use std::time::Duration;

fn main() {
    let case = std::env::args().nth(1).unwrap_or_default();
    let outside = Duration::from_millis(600);
    match case.as_str() {
        "" => heist::run(|| {
            let left = spawn("left", || thread::park());
            let right = spawn("right", || thread::park());
            left.join().unwrap();
            right.join().unwrap();
        }),
        "joined" => heist::run(|| {
            let parked = spawn("parked", || thread::park());
            let waits = spawn("waits", move || parked.join().unwrap());
            waits.join().unwrap();
        }),
        "rescued" => heist::run(|| {
            let sleeper = spawn("sleeper", || thread::park());
            let wake = sleeper.thread().clone();
            std::thread::spawn(move || {
                std::thread::sleep(outside);
                wake.unpark();
            });
            sleeper.join().unwrap();
            println!("rescued");
        }),
        "late" => heist::run(|| {
            std::thread::spawn(move || std::thread::sleep(outside));
            spawn("sleeper", || thread::park()).join().unwrap();
        }),
        "blocked" => rescued_by(move || std::thread::sleep(2 * outside)),
        "call" => rescued_by(move || heist::blocking(|| std::thread::sleep(2 * outside))),
        "locked" => heist::run(|| {
            let locked = spawn("locked", || {
                heist::runtime::lock_os_thread();
                thread::park();
            });
            locked.join().unwrap();
        }),
        "network" => heist::run(|| {
            let listener = heist::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port().to_string();
            let myself = std::env::current_exe().unwrap();
            let client = std::process::Command::new(myself).args(["client", &port]).spawn();
            spawn("server", move || drop(listener.accept().unwrap())).join().unwrap();
            println!("rescued");
            client.unwrap().wait().unwrap();
        }),
        "client" => {
            std::thread::sleep(2 * outside);
            let port = std::env::args().nth(2).unwrap().parse::<u16>().unwrap();
            drop(std::net::TcpStream::connect(("127.0.0.1", port)));
        }
        "centuries" => heist::run(|| heist::time::sleep(Duration::MAX)),
        "stopped" => heist::run(|| {
            let mut ticker = heist::time::Ticker::new(Duration::from_millis(1));
            ticker.stop();
            ticker.tick();
        }),
        other => panic!("there is no case '{other}'"),
    }
}

/// A goroutine calls `wait`, and then wakes the others.
fn rescued_by(wait: impl FnOnce() + Send + 'static) {
    heist::run(|| {
        let sleeper = spawn("sleeper", || thread::park());
        let wake = sleeper.thread().clone();
        let other = spawn("other", move || {
            wait();
            wake.unpark();
        });
        sleeper.join().unwrap();
        other.join().unwrap();
        println!("rescued");
    });
}

#[track_caller]
fn spawn(name: &str, f: impl FnOnce() + Send + 'static) -> thread::JoinHandle<()> {
    thread::Builder::new().name(name.into()).spawn(f).unwrap()
}
