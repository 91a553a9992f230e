//! Pools and their threads.

use super::common::{in_a_process, stderr, until, watched};
use super::{fib, pool};
use heist::par::{self, ThreadPoolBuilder};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

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
        // What it calls without naming a pool goes to this one. (The others of this test
        // program run on runtimes of other sizes.)
        let more = ThreadPoolBuilder::new().num_threads(7).build().unwrap();
        assert_eq!(more.install(par::current_num_threads), 7);
        drop(more);
        assert_eq!(par::current_num_threads(), 2);
        let here = || pool.current_thread_index().is_some();
        assert_eq!(par::join(here, here), (true, true));
        assert!(par::scope(|_| here()) && par::scope_fifo(|_| here()));
        assert_eq!(par::broadcast(|_| here()), [true, true]);
        let (sender, receiver) = std::sync::mpsc::channel();
        par::in_place_scope(|s| s.spawn(|_| sender.send(here()).unwrap()));
        assert_eq!(receiver.recv(), Ok(true));
        par::spawn(move || sender.send(par::current_num_threads() == 2).unwrap());
        assert_eq!(receiver.recv(), Ok(true));
        let again = ThreadPoolBuilder::new().use_current_thread().build();
        assert!(again.unwrap_err().to_string().contains("already part of another"));
        drop(pool);
        // What was spawned may be about to end.
        until(|| par::current_thread_index().is_none());
        let alone = ThreadPoolBuilder::new().num_threads(1).use_current_thread().build().unwrap();
        assert_eq!(alone.install(|| fib(10)), 55);
    })
    .join()
    .unwrap();
}

const INITIALIZED: &str = "The global thread pool has already been initialized.";

#[test]
fn the_default_runtime_is_built_once() {
    if let Some(output) = in_a_process() {
        return assert!(output.status.success(), "{}", stderr(&output));
    }
    let global = |threads| ThreadPoolBuilder::new().num_threads(threads).build_global();
    global(3).unwrap();
    assert_eq!(par::current_num_threads(), 3);
    assert_eq!(par::join(par::current_num_threads, par::current_thread_index).0, 3);
    assert_eq!(global(2).unwrap_err().to_string(), INITIALIZED);
    assert_eq!(par::current_num_threads(), 3);
}

#[test]
fn the_default_runtime_is_not_built_when_it_runs() {
    if let Some(output) = in_a_process() {
        return assert!(output.status.success(), "{}", stderr(&output));
    }
    assert_eq!(heist::run(|| fib(10)), 55);
    let error = ThreadPoolBuilder::new().build_global().unwrap_err();
    assert_eq!(error.to_string(), INITIALIZED);
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

/// The CPUs that a thread may use, as the kernel writes them, and its name.
fn cpus_of(task: &std::path::Path) -> Option<(String, String)> {
    let status = std::fs::read_to_string(task.join("status")).ok()?;
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
    Some((field("Name")?.to_owned(), field("Cpus_allowed")?.to_owned()))
}

/// A thief is kept off the CPU of whoever wakes it (`sched::apart`), but not for longer.
#[test]
fn thieves_may_run_on_all_cpus_afterwards() {
    watched(|| {
        const NAME: &str = "off-and-on";
        let builder = ThreadPoolBuilder::new().num_threads(2);
        let pool = builder.thread_name(|i| format!("{NAME}{i}")).build().unwrap();
        let (_, all) = cpus_of("/proc/thread-self".as_ref()).unwrap();
        for _ in 0..50 {
            assert_eq!(pool.install(|| fib(18)), 2584);
            // The thief falls asleep.
            std::thread::sleep(Duration::from_millis(1));
        }
        let is_free = || {
            let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
            let ours = tasks.filter_map(|task| cpus_of(&task.path()));
            let ours: Vec<_> = ours.filter(|(name, _)| name.starts_with(NAME)).collect();
            assert!(!ours.is_empty(), "nobody is called {NAME}");
            ours.iter().all(|(_, cpus)| *cpus == all)
        };
        // Who is about to wake up is not yet.
        while !is_free() {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}
