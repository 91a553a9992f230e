//! Nothing stays behind.

use super::*;

/// What the next runtime finds is what the first one found, whatever the last
/// one went through.
#[test]
fn a_new_runtime_inherits_no_flood_from_an_old_one() {
    if let Some(output) = in_a_process() {
        assert!(output.status.success(), "{}\n{}", output.status, stderr(&output));
        return;
    }
    let spawn_ten = || {
        let ran = Arc::new(AtomicUsize::new(0));
        for _ in 0..10 {
            let ran = ran.clone();
            drop(thread::spawn(move || ran.fetch_add(1, Ordering::SeqCst)));
        }
        ran.load(Ordering::SeqCst)
    };
    watched(|| {
        assert_eq!(runtime(1).run(spawn_ten), 0, "ten spawns do not make their spawner yield");
        runtime(1).run(|| {
            // Fills the queue by spawning, and at the end by waking.
            let parked: Vec<_> = (0..300).map(|_| thread::spawn(thread::park)).collect();
            until(|| heist::debug::dump().matches("[park]").count() == 300);
            parked.iter().for_each(|handle| handle.thread().unpark());
            parked.into_iter().for_each(drop);
        });
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(runtime(1).run(spawn_ten), 0, "nor do they on a runtime that comes later");
    });
}

/// Threads, mappings, resident bytes, allocated bytes.
fn footprint() -> [isize; 4] {
    let lines = |path: &str| std::fs::read_to_string(path).unwrap().lines().count() as isize;
    let threads = std::fs::read_dir("/proc/self/task").unwrap().count() as isize;
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: isize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    [threads, lines("/proc/self/maps"), pages * 4096, ALLOCATED.load(Ordering::SeqCst)]
}

/// A runtime that falls asleep as soon as its goroutines have ended gives back what their
/// stacks have used, too.
#[test]
fn a_runtime_asleep_keeps_no_pages_of_stacks() {
    const STACKS: usize = 32;
    const USED: isize = 1 << 20;
    if let Some(output) = in_a_process() {
        assert!(output.status.success(), "{}\n{}", output.status, stderr(&output));
        return;
    }
    #[inline(never)]
    fn use_stack() {
        std::hint::black_box([1u8; USED as usize]);
    }
    let resident = || footprint()[2];
    watched(|| {
        let runtime = runtime(1);
        runtime.run(|| {
            let all = (0..STACKS).map(|_| {
                let large = thread::Builder::new().stack_size(2 * USED as usize);
                large
                    .spawn(|| {
                        use_stack();
                        thread::park();
                    })
                    .unwrap()
            });
            let all: Vec<_> = all.collect();
            until(|| heist::debug::dump().matches("[park]").count() == STACKS);
            all.iter().for_each(|handle| handle.thread().unpark());
            all.into_iter().for_each(|handle| handle.join().unwrap());
        });
        let used = resident();
        assert!(used > STACKS as isize * USED, "{used} bytes resident");
        // `watched` ends it if not.
        while resident() > used - STACKS as isize * USED / 2 {
            std::thread::sleep(Duration::from_millis(10));
        }
    });
}

/// A short life: some of everything.
fn live_and_die(i: usize) {
    let runtime = runtime([1, 2, 4][i % 3]);
    let value = runtime.run(|| {
        let children: Vec<_> = (0..4).map(|n| thread::spawn(move || n)).collect();
        let named = thread::Builder::new().name(format!("named {i}")).stack_size(40 << 10);
        drop(named.spawn(thread::yield_now).unwrap());
        drop(heist::go_idle(|| ()));
        children.into_iter().map(|child| child.join().unwrap()).sum::<usize>()
    });
    assert_eq!(value, 6);
    let panicked = runtime.go(|| resume_unwind(Box::new(String::from("payload"))));
    let parked: Vec<_> = (0..3)
        .map(|n| {
            runtime.go(move || {
                let _kept = vec![n; 100];
                thread::park();
            })
        })
        .collect();
    if i.is_multiple_of(2) {
        let panicked: thread::Result<()> = panicked.join();
        assert!(panicked.is_err());
    }
    if i.is_multiple_of(3) {
        parked[0].thread().unpark();
    }
    if i.is_multiple_of(5) {
        drop(runtime);
        parked.into_iter().for_each(|handle| drop(handle.join()));
    }
}

#[test]
fn thousands_of_runtimes_leave_no_thread_mapping_or_memory_behind() {
    const RUNTIMES: usize = if cfg!(debug_assertions) { 1000 } else { 10_000 };
    if let Some(output) = in_a_process() {
        assert!(output.status.success(), "{}\n{}", output.status, stderr(&output));
        return;
    }
    watched(|| {
        // What is made once and kept for the next one is there after some.
        (0..RUNTIMES / 10).for_each(live_and_die);
        let before = footprint();
        (0..RUNTIMES).for_each(live_and_die);
        // A thread that has been joined is a moment longer in the kernel's list.
        until(|| footprint()[0] <= before[0]);
        let after = footprint();
        let [threads, mappings, resident, allocated] = [0, 1, 2, 3].map(|i| after[i] - before[i]);
        let text = format!("after {RUNTIMES} runtimes: {before:?} became {after:?}");
        // One that was there a moment longer may have been counted before.
        assert!(threads <= 0, "{text}");
        assert!(mappings < 50, "{text}");
        assert!(resident < 8 << 20, "{text}");
        // A few vectors may have grown.
        assert!(allocated < 16 << 10, "{text}");
        assert_eq!(heist::debug::dump(), "");
    });
}

#[test]
fn a_runtime_dropped_by_its_own_goroutine_leaves_no_thread_behind() {
    if let Some(output) = in_a_process() {
        assert!(output.status.success(), "{}\n{}", output.status, stderr(&output));
        return;
    }
    watched(|| {
        let before = footprint()[0];
        for i in 0..100 {
            let (own, drops) = (runtime(1 + i % 3), Drops::default());
            drop::<Vec<_>>(sleepers(&own, 3, &drops));
            let (give, take) = mpsc::channel::<Runtime>();
            let dropper = own.go(move || {
                let mine = loop {
                    match take.try_recv() {
                        Ok(mine) => break mine,
                        Err(_) => thread::yield_now(),
                    }
                };
                drop(mine);
            });
            give.send(own).unwrap();
            dropper.join().unwrap();
            until(|| drops.count() == 3);
        }
        until(|| footprint()[0] <= before);
    });
}

/// Threads that have waited longer than they are kept, but are as many as the Ps
/// need, sleep on.
#[test]
fn an_idle_runtime_does_not_compute() {
    if let Some(output) = in_a_process() {
        assert!(output.status.success(), "{}\n{}", output.status, stderr(&output));
        return;
    }
    let cpu = || {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the clock exists and `time` is a live timespec.
        unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    watched(|| {
        for keep in [Duration::from_millis(2), Duration::ZERO] {
            let builder = heist::Builder::new().max_procs(2).thread_keep_alive(keep);
            let runtime = builder.build().unwrap();
            runtime
                .run(|| thread::scope(|s| (0..100).for_each(|_| drop(s.spawn(thread::yield_now)))));
            std::thread::sleep(Duration::from_millis(20));
            // More than once: what a stalled machine takes counts as well, and passes.
            let mut used = (0..5).map(|_| {
                let before = cpu();
                std::thread::sleep(Duration::from_millis(300));
                cpu() - before
            });
            let idles = used.any(|used| used < Duration::from_millis(100));
            assert!(idles, "it computes all the time, kept for {keep:?}");
        }
    });
}
