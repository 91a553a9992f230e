//! `heist::fs`, `io`, `process` and `signal`: what std does, on goroutines and on
//! plain threads, and nothing left behind.

#[path = "../common/mod.rs"]
mod common;
mod fs;
mod io;
mod process;
mod signal;

use common::*;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Each of these holds on a plain thread, on one P and on several.
fn everywhere(check: impl Fn() + Sync) {
    watched(|| {
        check();
        runtime(1).run(&check);
        runtime(4).run(&check);
    });
}

/// A folder that is gone at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("heist-test-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Folder(path)
    }

    fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// How many descriptors the process has open.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}
