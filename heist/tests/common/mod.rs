//! What the tests share.

// Each test program uses a part of it.
#![allow(dead_code)]

use heist::{Runtime, thread};
use std::any::Any;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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
    // A shell that starts the tests in the background has them ignore these two.
    // SAFETY: signal(2) may be called between fork and exec.
    unsafe {
        child.pre_exec(|| {
            signal(SIGINT, SIG_DFL);
            signal(SIGQUIT, SIG_DFL);
            Ok(())
        });
    }
    Some(child.env(CHILD, "1").output().unwrap())
}

const SIGINT: i32 = 2;
const SIGQUIT: i32 = 3;
const SIG_DFL: usize = 0;

unsafe extern "C" {
    fn signal(number: i32, handler: usize) -> usize;
}

/// What a child said on standard error.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn runtime(procs: usize) -> Runtime {
    heist::Builder::new().max_procs(procs).build().unwrap()
}

/// Each of these holds on a plain thread, on one P and on several.
pub(crate) fn everywhere(check: impl Fn() + Sync) {
    watched(|| {
        check();
        runtime(1).run(&check);
        runtime(4).run(&check);
    });
}

/// Fewer repetitions in a debug build, where each costs ten times as much.
pub(crate) const fn many(release: usize) -> usize {
    if cfg!(debug_assertions) { release / 10 } else { release }
}

/// More Ps than cores: goroutines are interrupted anywhere.
pub(crate) const CROWDED: usize = 8;

pub(crate) fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Waits for something, on a goroutine or on a plain thread.
pub(crate) fn until(mut happened: impl FnMut() -> bool) {
    while !happened() {
        thread::yield_now();
    }
}

/// Starts a goroutine, and returns when it waits for a descriptor.
pub(crate) fn waiting<T: Send + 'static>(
    f: impl FnOnce() -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    static NAMES: AtomicUsize = AtomicUsize::new(0);
    let name = format!("waits{}", NAMES.fetch_add(1, Ordering::Relaxed));
    let sign = format!("'{name}' [IO wait");
    let handle = thread::Builder::new().name(name).spawn(f).unwrap();
    until(|| heist::debug::dump().contains(&sign));
    handle
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

/// Goroutines that compute until they are told to stop, and never call the runtime.
pub(crate) struct Hogs {
    stop: Arc<AtomicBool>,
    work: Arc<Vec<AtomicUsize>>,
    running: Arc<AtomicUsize>,
    all: Vec<thread::JoinHandle<()>>,
}

impl Hogs {
    /// On the runtime of the caller, which is a goroutine. Each does `step` over and
    /// over.
    pub(crate) fn start(n: usize, step: impl Fn() + Clone + Send + 'static) -> Hogs {
        struct Runs(Arc<AtomicUsize>);
        impl Drop for Runs {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
        let stop = Arc::new(AtomicBool::new(false));
        let work = Arc::new((0..n).map(|_| AtomicUsize::new(0)).collect::<Vec<_>>());
        let running = Arc::new(AtomicUsize::new(n));
        let all = (0..n)
            .map(|i| {
                let runs = Runs(running.clone());
                let (stop, work, step) = (stop.clone(), work.clone(), step.clone());
                heist::go(move || {
                    let _runs = runs;
                    while !stop.load(Ordering::Relaxed) {
                        step();
                        work[i].fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        Hogs { stop, work, running, all }
    }

    /// How often each has done its step.
    pub(crate) fn work(&self) -> Vec<usize> {
        self.work.iter().map(|n| n.load(Ordering::Relaxed)).collect()
    }

    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    pub(crate) fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }

    /// Stops them, and waits for them.
    pub(crate) fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        self.join();
    }

    /// Waits for them, and passes their panics on.
    pub(crate) fn join(self) {
        for hog in self.all {
            if let Err(panic) = hog.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}
