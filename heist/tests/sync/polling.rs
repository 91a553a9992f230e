//! Those who look again and again, and never wait.

use super::*;
use heist::chan;
use heist::sync::mpsc;
use std::fmt::Debug;

const HOUR: Duration = Duration::from_secs(3600);

/// On one P, each that looks in vain lets others run after a few looks, and not only when
/// its time slice is over: counted in looks.
#[test]
fn those_who_look_let_others_run() {
    const TURNS: usize = 200;
    watched(|| {
        runtime(1).run(|| {
            let (mutex, written) = (Mutex::new(()), RwLock::new(()));
            let held = (mutex.lock().unwrap(), written.write().unwrap());
            let (permits, context) = (Semaphore::new(0), Context::background());
            let (_quiet, receiver) = mpsc::channel::<()>();
            let (full, none) = (chan::bounded::<u8>(1), chan::bounded::<u8>(0));
            full.0.send(1).unwrap();
            let (stop, looks) = (AtomicBool::new(false), AtomicUsize::new(0));
            let sleeper = heist::go(|| thread::park());
            thread::scope(|s| {
                let (full, none) = (&full, &none);
                let in_vain: [Box<dyn Fn() -> bool + Send + '_>; 14] = [
                    Box::new(|| mutex.try_lock().is_err()),
                    Box::new(|| written.try_read().is_err()),
                    Box::new(|| written.try_write().is_err()),
                    Box::new(|| permits.try_acquire().is_none()),
                    Box::new(|| permits.available_permits() == 0),
                    Box::new(|| context.err().is_none()),
                    Box::new(|| !sleeper.is_finished()),
                    Box::new(move || receiver.try_recv().is_err()),
                    Box::new(|| full.0.try_send(2).is_err()),
                    Box::new(|| full.0.is_full()),
                    Box::new(|| none.1.is_empty()),
                    Box::new(|| none.1.try_recv().is_err()),
                    Box::new(|| none.1.recv_timeout(Duration::ZERO).is_err()),
                    Box::new(|| chan::select! { recv(none.1) -> _ => false, default => true }),
                ];
                let lookers = in_vain.len();
                for look in in_vain {
                    let (stop, looks) = (&stop, &looks);
                    s.spawn(move || {
                        while !stop.load(Ordering::SeqCst) {
                            assert!(look());
                            looks.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                }
                thread::yield_now(); // they run from here on
                let before = looks.load(Ordering::Relaxed);
                (0..TURNS).for_each(|_| thread::yield_now());
                let looks = looks.load(Ordering::Relaxed) - before;
                stop.store(true, Ordering::SeqCst);
                // Each may look 64 times before the next has its turn.
                assert!(looks <= 2 * 64 * lookers * TURNS, "{looks} looks in {TURNS} turns");
                drop(held);
            });
            sleeper.thread().unpark();
        });
    });
}

/// Not so those who only format: `println!` does that with a lock which belongs to the
/// thread. On one P that nobody may take away, another goroutine counts its turns.
#[test]
fn who_formats_lets_nobody_run() {
    watched(|| {
        runtime(1).run(|| {
            let (mutex, written) = (Mutex::new(1), RwLock::new(2));
            let (read, free) = (RwLock::new(3), Mutex::new(4));
            let held = (mutex.lock().unwrap(), written.write().unwrap(), read.read().unwrap());
            let (context, _cancel) = Context::background().with_timeout(HOUR);
            let (once, lazy) = (OnceLock::<u8>::new(), LazyLock::new(|| 5));
            let (permits, group, condvar) = (Semaphore::new(0), WaitGroup::new(), Condvar::new());
            let (barrier, run_once) = (Barrier::new(2), Once::new());
            let (sender, receiver) = heist::chan::bounded::<u8>(0);
            let sleeper = heist::go(|| thread::park());
            let (timer, ticker) =
                (heist::time::Timer::after(HOUR, || ()), heist::time::Ticker::new(HOUR));
            let formatted: [&dyn Debug; 17] = [
                &mutex, &written, &read, &free, &context, &once, &lazy, &permits, &group, &condvar,
                &barrier, &run_once, &sender, &receiver, &sleeper, &timer, &ticker,
            ];
            let (stop, turns) = (AtomicBool::new(false), AtomicUsize::new(0));
            thread::scope(|s| {
                s.spawn(|| {
                    while !stop.load(Ordering::SeqCst) {
                        turns.fetch_add(1, Ordering::SeqCst);
                        thread::yield_now();
                    }
                });
                while turns.load(Ordering::SeqCst) == 0 {
                    thread::yield_now();
                }
                for value in formatted {
                    heist::no_preempt(|| {
                        let before = turns.load(Ordering::SeqCst);
                        let lengths = (0..1000).map(|_| format!("{value:?}").len());
                        assert!(lengths.min().is_some_and(|length| length > 0));
                        assert_eq!(turns.load(Ordering::SeqCst), before, "in between: {value:?}");
                    });
                }
                stop.store(true, Ordering::SeqCst);
            });
            assert!(timer.stop());
            sleeper.thread().unpark();
            drop(held);
        });
    });
}
