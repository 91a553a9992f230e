//! What the tests share.

// Each test program uses a part of it.
#![allow(dead_code)]

use heist::{Runtime, thread};
use std::any::Any;
use std::io::Write;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Runs a test; one that hangs ends the process and says where everybody is.
pub(crate) fn watched<T>(test: impl FnOnce() -> T) -> T {
    let (over, wait) = mpsc::channel::<()>();
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    std::thread::spawn(move || {
        if wait.recv_timeout(Duration::from_secs(120)) == Err(mpsc::RecvTimeoutError::Timeout) {
            let mut stderr = std::io::stderr();
            let _ = writeln!(stderr, "{name} hangs. Goroutines:\n");
            let _ = stderr.write_all(heist::debug::dump().as_bytes());
            std::process::abort();
        }
    });
    let value = test();
    drop(over);
    value
}

/// Runs the calling test in a process of its own. `None` in that process.
pub(crate) fn in_a_process() -> Option<Output> {
    const CHILD: &str = "HEIST_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        return None;
    }
    // libtest names the thread of a test after it.
    let test = std::thread::current().name().expect("the thread of a test").to_owned();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", &test, "--nocapture", "--test-threads=1"]);
    Some(child.env(CHILD, "1").output().unwrap())
}

/// What a child said on standard error.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn runtime(procs: usize) -> Runtime {
    heist::Builder::new().max_procs(procs).build().unwrap()
}

/// Waits for something, on a goroutine or on a plain thread.
pub(crate) fn until(mut happened: impl FnMut() -> bool) {
    while !happened() {
        thread::yield_now();
    }
}

/// The text of a panic.
pub(crate) fn text(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("neither &str nor String")
}

/// Counts how often values of it are dropped.
#[derive(Clone, Default)]
pub(crate) struct Drops(Arc<AtomicUsize>);

impl Drops {
    pub(crate) fn value(&self) -> Droplet {
        Droplet(self.0.clone())
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

pub(crate) struct Droplet(Arc<AtomicUsize>);

impl Drop for Droplet {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}
