//! A process in which all goroutines wait costs nothing.

use super::common::{in_a_process, stderr, watched};
use heist::{Builder, chan, go};
use std::time::Duration;

/// How often the threads of this process have gone to sleep so far.
fn sleeps() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("status")).ok())
        .filter_map(|status| {
            let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches"))?;
            line.split_whitespace().last()?.parse::<u64>().ok()
        })
        .sum()
}

#[test]
fn nobody_wakes_up() {
    const SECONDS: u64 = 3;
    if let Some(output) = in_a_process() {
        return assert!(output.status.success(), "{}", stderr(&output));
    }
    watched(|| {
        let runtime = Builder::new().max_procs(2).build().unwrap();
        let (send, receive) = chan::bounded::<()>(0);
        let waits = runtime.go(move || receive.recv());
        runtime.run(|| go(|| ()).join().unwrap());
        // All threads go to sleep, sysmon last, after 100 ms of idleness.
        std::thread::sleep(Duration::from_secs(1));
        let before = sleeps();
        std::thread::sleep(Duration::from_secs(SECONDS));
        // This thread sleeps, too, once; and reading the files may wait.
        let some = sleeps() - before;
        assert!(some <= 2 * SECONDS + 2, "{some} wake-ups in {SECONDS} seconds");
        drop(send);
        assert!(waits.join().unwrap().is_err());
    });
}
