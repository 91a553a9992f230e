//! What programs see: std's texts, and std's bounds.

use super::*;
use std::fmt::Debug;
use std::panic::{RefUnwindSafe, UnwindSafe};

fn same(ours: impl Debug, theirs: impl Debug) {
    assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
    assert_eq!(format!("{ours:#?}"), format!("{theirs:#?}"));
}

/// What a panic says.
fn panic_of<T>(f: impl FnOnce() -> T) -> String {
    let panicked = catch_unwind(AssertUnwindSafe(|| drop(f()))).unwrap_err();
    text(&*panicked).to_owned()
}

macro_rules! poisoned {
    ($lock:ident) => {{
        let lock = $lock;
        let _ = catch_unwind(AssertUnwindSafe(|| {
            let _held = lock.lock();
            panic!("poison");
        }));
        lock
    }};
}

#[test]
fn debug_texts() {
    let (ours, theirs) = (Mutex::new("x"), std::sync::Mutex::new("x"));
    same(&ours, &theirs);
    {
        let (held, theirs_held) = (ours.lock().unwrap(), theirs.lock().unwrap());
        same(&ours, &theirs);
        same(&held, &theirs_held);
        assert_eq!(held.to_string(), theirs_held.to_string());
    }
    let (ours, theirs) = (poisoned!(ours), poisoned!(theirs));
    same(&ours, &theirs);
    same(ours.lock(), theirs.lock());
    same(ours.try_lock(), theirs.try_lock());
    assert_eq!(ours.lock().unwrap_err().to_string(), theirs.lock().unwrap_err().to_string());

    let (ours, theirs) = (RwLock::new([1]), std::sync::RwLock::new([1]));
    same(&ours, &theirs);
    same(ours.read(), theirs.read());
    {
        let (held, theirs_held) = (ours.write(), theirs.write());
        same(&ours, &theirs);
        same(held, theirs_held);
    }

    same(Condvar::new(), std::sync::Condvar::new());
    same(Once::new(), std::sync::Once::new());
    Once::new().call_once_force(|ours| {
        std::sync::Once::new().call_once_force(|theirs| same(ours, theirs));
    });
    same(Barrier::new(1), std::sync::Barrier::new(1));
    same(Barrier::new(1).wait(), std::sync::Barrier::new(1).wait());
    same(OnceLock::<u8>::new(), std::sync::OnceLock::<u8>::new());
    same(OnceLock::from(1), std::sync::OnceLock::from(1));
    let (ours, theirs) = (LazyLock::new(|| 1), std::sync::LazyLock::new(|| 1));
    same(&ours, &theirs);
    assert_eq!(*ours, *theirs);
    same(&ours, &theirs);
    let short = Duration::from_nanos(1);
    let (mutex, theirs) = (Mutex::new(()), std::sync::Mutex::new(()));
    same(
        Condvar::new().wait_timeout(mutex.lock().unwrap(), short).unwrap().1,
        std::sync::Condvar::new().wait_timeout(theirs.lock().unwrap(), short).unwrap().1,
    );
}

#[test]
fn panic_texts() {
    let (ours, theirs) = (Once::new(), std::sync::Once::new());
    panic_of(|| ours.call_once(|| panic!()));
    panic_of(|| theirs.call_once(|| panic!()));
    assert_eq!(panic_of(|| ours.call_once(|| ())), panic_of(|| theirs.call_once(|| ())));
    assert_eq!(panic_of(|| ours.wait()), panic_of(|| theirs.wait()));

    let mut ours = LazyLock::<u8, fn() -> u8>::new(|| panic!("first"));
    let mut theirs = std::sync::LazyLock::<u8, fn() -> u8>::new(|| panic!("first"));
    assert_eq!(panic_of(|| *ours), panic_of(|| *theirs));
    assert_eq!(panic_of(|| *ours), panic_of(|| *theirs));
    assert_eq!(panic_of(|| *ours += 1), panic_of(|| *theirs += 1));

    let (ours, theirs) = (Mutex::new(1), std::sync::Mutex::new(1));
    let (ours, theirs) = (poisoned!(ours), poisoned!(theirs));
    assert_eq!(panic_of(|| ours.lock().unwrap()), panic_of(|| theirs.lock().unwrap()));
    assert_eq!(panic_of(|| ours.try_lock().unwrap()), panic_of(|| theirs.try_lock().unwrap()));
}

/// Compiles for ours exactly if it does for theirs: one line for each bound that
/// std documents.
#[test]
fn bounds() {
    fn send<T: Send + ?Sized>() {}
    fn sync<T: Sync + ?Sized>() {}
    fn unwind<T: UnwindSafe + RefUnwindSafe + ?Sized>() {}
    type NotSync = std::cell::Cell<u8>;
    type NotUnwindSafe = &'static mut std::cell::Cell<u8>;

    send::<Mutex<NotSync>>();
    sync::<Mutex<NotSync>>();
    unwind::<Mutex<NotUnwindSafe>>();
    sync::<heist::sync::MutexGuard<'static, u8>>();
    send::<RwLock<NotSync>>();
    sync::<RwLock<u8>>();
    unwind::<RwLock<NotUnwindSafe>>();
    sync::<heist::sync::RwLockReadGuard<'static, u8>>();
    sync::<heist::sync::RwLockWriteGuard<'static, u8>>();
    unwind::<heist::sync::RwLockReadGuard<'static, &'static mut u8>>();
    send::<OnceLock<NotSync>>();
    sync::<OnceLock<u8>>();
    unwind::<OnceLock<u8>>();
    sync::<LazyLock<u8, NotSync>>();
    send::<LazyLock<NotSync, NotSync>>();
    unwind::<LazyLock<u8>>();
    for check in [send::<Condvar>, sync::<Condvar>, unwind::<Condvar>] {
        check();
    }
    for check in [send::<Once>, sync::<Once>, unwind::<Once>] {
        check();
    }
    for check in [send::<Barrier>, sync::<Barrier>, unwind::<Barrier>] {
        check();
    }
    for check in [send::<Semaphore>, sync::<Semaphore>, send::<WaitGroup>, sync::<WaitGroup>] {
        check();
    }
    // Errors are std's own: code that names them mixes.
    let ours: Result<(), std::sync::TryLockError<()>> = Err(TryLockError::WouldBlock);
    assert!(ours.is_err());
}
