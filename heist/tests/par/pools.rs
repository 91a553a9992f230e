//! Pools and their threads.

use super::{fib, pool};
use heist::par::{self, ThreadPoolBuilder};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn pools_wait_for_each_other() {
    let (one, two) = (pool(1), pool(1));
    let value = one.install(|| two.install(|| one.install(|| two.install(|| fib(10)))));
    assert_eq!(value, 55);
}

#[test]
fn a_goroutine_of_one_runtime_uses_another() {
    let pool = pool(2);
    let value = heist::run(|| heist::go(move || pool.install(|| fib(10))).join().unwrap());
    assert_eq!(value, 55);
}

#[test]
fn what_was_spawned_outlives_the_pool() {
    let (sender, receiver) = heist::chan::bounded(0);
    let (go, wait) = heist::chan::bounded(0);
    let pool = pool(2);
    pool.spawn(move || {
        wait.recv().unwrap();
        par::spawn(move || sender.send(par::current_num_threads()).unwrap());
    });
    drop(pool);
    go.send(()).unwrap();
    assert_eq!(receiver.recv(), Ok(2));
}

#[test]
fn handlers_are_called_on_each_thread() {
    let (started, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let count = |to: &Arc<AtomicUsize>| {
        let to = to.clone();
        move |index: usize| {
            to.fetch_add(1 << (8 * index), Ordering::SeqCst);
        }
    };
    ThreadPoolBuilder::new()
        .num_threads(3)
        .start_handler(count(&started))
        .exit_handler(count(&ended))
        .build_scoped(par::ThreadBuilder::run, |pool| {
            assert_eq!(pool.broadcast(|context| context.index()), [0, 1, 2]);
        })
        .unwrap();
    assert_eq!(started.load(Ordering::SeqCst), 0x10101);
    assert_eq!(ended.load(Ordering::SeqCst), 0x10101);
}

#[test]
fn a_refused_thread_is_an_error_and_ends_the_others() {
    let mut left = 2;
    let result = ThreadPoolBuilder::new()
        .num_threads(4)
        .spawn_handler(|thread| {
            if left == 0 {
                return Err(std::io::Error::other("no more"));
            }
            left -= 1;
            std::thread::spawn(|| thread.run());
            Ok(())
        })
        .build();
    assert_eq!(result.unwrap_err().to_string(), "no more");
}

#[test]
fn a_thread_that_counts_as_part_of_a_pool() {
    std::thread::spawn(|| {
        let pool = ThreadPoolBuilder::new().num_threads(2).use_current_thread().build().unwrap();
        assert_eq!(par::current_thread_index(), Some(0));
        assert_eq!(pool.install(par::current_thread_index), Some(1));
        let again = ThreadPoolBuilder::new().use_current_thread().build();
        assert!(again.unwrap_err().to_string().contains("already part of another"));
        drop(pool);
        assert_eq!(par::current_thread_index(), None);
        let alone = ThreadPoolBuilder::new().num_threads(1).use_current_thread().build().unwrap();
        assert_eq!(alone.install(|| fib(10)), 55);
    })
    .join()
    .unwrap();
}

#[test]
fn a_panic_of_what_was_spawned_goes_to_the_handler() {
    let (sender, receiver) = heist::chan::unbounded();
    let pool = ThreadPoolBuilder::new()
        .num_threads(2)
        .panic_handler(move |payload| sender.send(payload).unwrap())
        .build()
        .unwrap();
    pool.spawn(|| panic!("spawned"));
    let payload = receiver.recv().unwrap();
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"spawned"));
}
