//! What a goroutine waits for, and where: the dump has it for every call that waits.

use super::*;
use heist::chan::{self, Receiver, Select, Sender, select};
use heist::sync::{Condvar, LazyLock, Once, RwLock, Semaphore, WaitGroup, mpsc};
use heist::time::{self, Instant};
use std::panic::Location;

/// A wait: what it is called, and its line in this file.
struct Wait {
    reason: &'static str,
    line: u32,
    wait: Box<dyn FnOnce() + Send>,
}

/// The wait is on the line of this call.
#[track_caller]
fn waits<T>(reason: &'static str, wait: impl FnOnce() -> T + Send + 'static) -> Wait {
    Wait { reason, line: Location::caller().line(), wait: Box::new(move || drop(wait())) }
}

/// Something that lives as long as the program.
fn kept<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

const HOUR: Duration = Duration::from_secs(3600);

fn at_channels() -> Vec<Wait> {
    let receive = "chan receive";
    let later = Instant::now() + HOUR;
    // Of the first one receives, of the other one sends; nobody does the other half.
    let (quiet, r): &(Sender<u8>, Receiver<u8>) = kept(chan::bounded(0));
    let (s, idle): &(Sender<u8>, Receiver<u8>) = kept(chan::bounded(0));
    let (full, silent) = (mpsc::sync_channel::<u8>(0), mpsc::channel::<u8>());
    kept(full.1);
    kept(silent.0);
    let (received, iterated) = (silent.1, mpsc::channel::<u8>());
    kept(iterated.0);
    let both = move || {
        let mut both = Select::new();
        both.recv(r);
        both.send(s);
        both
    };
    assert!(quiet.is_full() && idle.is_empty());
    vec![
        waits(receive, || r.recv()),
        waits(receive, || r.recv_timeout(HOUR)),
        waits(receive, move || r.recv_deadline(later)),
        waits(receive, || r.iter().next()),
        waits(receive, || r.into_iter().next()),
        waits(receive, || r.clone().into_iter().next()),
        waits(receive, || chan::after(HOUR).recv()),
        waits(receive, || chan::tick(HOUR).recv()),
        waits(receive, || chan::never::<u8>().recv()),
        waits("chan send", || s.send(1)),
        waits("chan send", || s.send_timeout(1, HOUR)),
        waits("chan send", move || s.send_deadline(1, later)),
        waits("select", move || select! { recv(r) -> _ => {} send(s, 1) -> _ => {} }),
        waits("select", move || chan::select_biased! { recv(r) -> _ => {} default(HOUR) => {} }),
        waits("select", move || both().select()),
        waits("select", move || both().select_timeout(HOUR)),
        waits("select", move || both().select_deadline(later)),
        waits("select", move || both().ready()),
        waits("select", move || both().ready_timeout(HOUR)),
        waits("select", move || both().ready_deadline(later)),
        waits("chan send", move || full.0.send(1)),
        waits(receive, move || received.recv()),
        waits(receive, move || iterated.1.iter().next()),
    ]
}

fn in_sync_and_time() -> Vec<Wait> {
    // The mutex and the locks are held, and what is made once is being made.
    let (mutex, read, written) =
        (kept(heist::sync::Mutex::new(())), kept(RwLock::new(())), kept(RwLock::new(())));
    std::mem::forget((mutex.lock(), read.read(), written.write()));
    let (condvar, own) =
        (kept(Condvar::new()), kept([(); 4].map(|()| heist::sync::Mutex::new(()))));
    let barrier = kept(heist::sync::Barrier::new(2));
    let (permits, group) = (kept(Semaphore::new(0)), kept(WaitGroup::new()));
    group.add(1);
    let (once, cell): (&Once, &heist::sync::OnceLock<()>) =
        (kept(Once::new()), kept(heist::sync::OnceLock::new()));
    let lazy: &LazyLock<()> = kept(LazyLock::new(|| thread::park()));
    let began = kept(AtomicUsize::new(0));
    let begin = || {
        began.fetch_add(1, Ordering::SeqCst);
        thread::park();
    };
    drop(heist::go(move || once.call_once(begin)));
    drop(heist::go(move || *cell.get_or_init(begin)));
    drop(heist::go(move || {
        began.fetch_add(1, Ordering::SeqCst);
        LazyLock::force(lazy);
    }));
    until(|| began.load(Ordering::SeqCst) == 3);
    thread::yield_now();
    let hold = move |i: usize| own[i].lock().unwrap();
    let (background, cancel) = heist::sync::Context::background().with_timeout(HOUR);
    kept(cancel);
    let mut stopped = time::Ticker::new(HOUR);
    stopped.stop();
    vec![
        waits("sync.Mutex.Lock", || mutex.lock()),
        waits("sync.RWMutex.RLock", || written.read()),
        waits("sync.RWMutex.Lock", || read.write()),
        waits("sync.Cond.Wait", move || condvar.wait(hold(0))),
        waits("sync.Cond.Wait", move || condvar.wait_while(hold(1), |()| true)),
        waits("sync.Cond.Wait", move || condvar.wait_timeout(hold(2), HOUR)),
        waits("sync.Cond.Wait", move || condvar.wait_timeout_while(hold(3), HOUR, |()| true)),
        waits("barrier", || barrier.wait()),
        waits("semacquire", || permits.acquire()),
        waits("semacquire", || permits.acquire_timeout(HOUR)),
        waits("sync.WaitGroup.Wait", || group.wait()),
        waits("once", || once.call_once(|| ())),
        waits("once", || once.wait()),
        waits("once", || cell.get_or_init(|| ())),
        waits("once", || cell.wait()),
        waits("sleep", || time::sleep(HOUR)),
        waits("sleep", || time::sleep_until(Instant::now() + HOUR)),
        waits("sleep", || thread::sleep(HOUR)),
        waits("sleep", || time::Ticker::new(HOUR).tick()),
        waits("sleep", || time::Ticker::new(HOUR).next()),
        waits("sleep", move || stopped.tick()),
        waits("join", || time::timeout(HOUR, || thread::park())),
        waits("park", || thread::park()),
        waits("park", || thread::park_timeout(HOUR)),
        waits("join", || heist::go(|| thread::park()).join()),
        waits("once", || *LazyLock::force(lazy)),
        waits("once", || **lazy),
        waits("chan receive", move || background.done().recv()),
    ]
}

/// Those that do not wait as they should, with what the dump says of them.
fn missing(expected: &[(String, &'static str, u32)]) -> Vec<(&'static str, u32, Option<String>)> {
    let dump = heist::debug::dump();
    let entry = |name: &str| dump.split("\n\n").find(|entry| entry.contains(name));
    let as_expected = |entry: &str, reason: &str, line: u32| {
        let mut lines = entry.lines();
        let state = lines.next().and_then(|state| state.split_once('[')).map(|(_, state)| state);
        // A mutex says also who has it.
        state.is_some_and(|state| state.trim_end_matches("]:").split(", ").next() == Some(reason))
            && lines.next().is_some_and(|site| site.contains(&format!("/waits.rs:{line}:")))
    };
    let mut missing = Vec::new();
    for (name, reason, line) in expected {
        let entry = entry(name);
        if !entry.is_some_and(|entry| as_expected(entry, reason, *line)) {
            missing.push((*reason, *line, entry.map(str::to_owned)));
        }
    }
    missing
}

#[test]
fn the_dump_says_what_everybody_waits_for_and_where() {
    watched(|| {
        for make in [at_channels, in_sync_and_time] {
            runtime(2).run(move || {
                let mut expected = Vec::new();
                for Wait { reason, line, wait } in make() {
                    let name = format!("waits on line {line}");
                    expected.push((format!("'{name}'"), reason, line));
                    drop(thread::Builder::new().name(name).spawn(wait).unwrap());
                }
                // Each comes to its wait; those that have not after a while are told.
                for _ in 0..500 {
                    if missing(&expected).is_empty() {
                        return;
                    }
                    time::sleep(Duration::from_millis(10));
                }
                panic!("{:#?}", missing(&expected));
            });
        }
    });
}
