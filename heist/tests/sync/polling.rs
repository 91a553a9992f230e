//! Those who look again and again, and never wait.

use super::*;
use heist::sync::mpsc;

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
            let (stop, looks) = (AtomicBool::new(false), AtomicUsize::new(0));
            let sleeper = heist::go(|| thread::park());
            thread::scope(|s| {
                let in_vain: [Box<dyn Fn() -> bool + Send + '_>; 7] = [
                    Box::new(|| mutex.try_lock().is_err()),
                    Box::new(|| written.try_read().is_err()),
                    Box::new(|| written.try_write().is_err()),
                    Box::new(|| permits.try_acquire().is_none()),
                    Box::new(|| context.err().is_none()),
                    Box::new(|| !sleeper.is_finished()),
                    Box::new(move || receiver.try_recv().is_err()),
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
