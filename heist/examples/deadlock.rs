//! Goroutines that wait for each other for ever.
//!
//! With no other thread in the process that could wake one of them, heist says
//! so, lists them and ends the process with code 2:
//!
//! ```text
//! cargo run --example deadlock
//! ```
//!
//! Arguments show the cases around it: `joined` (two that join each other's
//! friends), `rescued` (a plain thread wakes them in time), `late` (a plain
//! thread that could have, but ends).

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
        other => panic!("there is no case '{other}'"),
    }
}

#[track_caller]
fn spawn(name: &str, f: impl FnOnce() + Send + 'static) -> thread::JoinHandle<()> {
    thread::Builder::new().name(name.into()).spawn(f).unwrap()
}
