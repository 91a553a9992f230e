//! `heist::fs`, `io`, `process` and `signal`: what std does, on goroutines and on
//! plain threads, and nothing left behind.

#[path = "../common/mod.rs"]
mod common;
mod copy;
mod fs;
mod io;
mod process;
mod signal;

use common::*;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// As std's are.
const fn unwind_safe<T: UnwindSafe + RefUnwindSafe>() {}
const _: () = {
    unwind_safe::<heist::io::PipeReader>();
    unwind_safe::<heist::io::PipeWriter>();
    unwind_safe::<heist::process::Child>();
    unwind_safe::<heist::process::ChildStdin>();
    unwind_safe::<heist::process::ChildStdout>();
    unwind_safe::<heist::process::ChildStderr>();
};

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

/// The descriptors that the process has open, as the kernel describes them.
fn descriptors() -> Vec<String> {
    let all = std::fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
    let mut names: Vec<_> = all.filter_map(|path| std::fs::read_link(path).ok()).collect();
    names.sort();
    names.into_iter().map(|name| name.display().to_string()).collect()
}

/// Makes the runtime open what its poller needs: by waiting for something.
fn warm_up() {
    let (mut reader, mut writer) = heist::io::pipe().unwrap();
    let read = heist::go(move || std::io::Read::read_exact(&mut reader, &mut [0]));
    heist::thread::sleep(std::time::Duration::from_millis(1));
    std::io::Write::write_all(&mut writer, &[0]).unwrap();
    read.join().unwrap().unwrap();
}
