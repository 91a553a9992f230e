//! Files and folders: `std::fs`, whole, for goroutines.
//!
//! A program that says `use heist::fs` instead of `use std::fs` compiles and
//! behaves the same. Each function is std's own, called by a declared system call
//! ([`syscall`]): if the disk takes its time, the goroutine's P
//! goes to others, and only its thread waits.
//!
//! ```
//! use heist::fs::{self, File};
//! use std::io::{Read, Write};
//!
//! # fn main() -> std::io::Result<()> {
//! heist::run(|| {
//!     let path = std::env::temp_dir().join(format!("heist-fs-{}", std::process::id()));
//!     File::create(&path)?.write_all(b"plain blocking code")?;
//!     let mut text = String::new();
//!     File::open(&path)?.read_to_string(&mut text)?;
//!     assert_eq!(text, "plain blocking code");
//!     fs::remove_file(&path)
//! })
//! # }
//! ```
//!
//! What only describes, and waits for nothing, is std's type itself: [`Metadata`],
//! [`Permissions`], [`FileType`], [`FileTimes`], [`TryLockError`]. The extension
//! traits of `std::os::unix::fs` are there for all types, and
//! [`os::unix::fs`](crate::os::unix::fs) has the functions.
//!
//! One thing is missing: std reads from, writes to and seeks in an `Arc<File>`, which
//! only std may implement for an `Arc`. A reference to the file does the same:
//!
//! ```
//! use heist::fs::File;
//! use std::io::{Read, Seek};
//! use std::sync::Arc;
//!
//! let file = Arc::new(File::open("/etc/passwd")?);
//! let mut byte = [0];
//! (&*file).read_exact(&mut byte)?;
//! assert_eq!((&*file).stream_position()?, 1);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Files on a disk are always ready as far as epoll is concerned, so that there is
//! nothing to park for. A FIFO or a terminal that was opened as a [`File`] is read
//! in the same way and holds a thread while it waits; [`io::pipe`](crate::io::pipe)
//! and [`io::stdin`](crate::io::stdin) hold none.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | the functions |
//! | `file.rs` | [`File`] |
//! | `open.rs` | [`OpenOptions`] |
//! | `dir.rs` | [`ReadDir`], [`DirEntry`], [`DirBuilder`] |
//! | `fd.rs` | descriptors into files and back |

mod dir;
#[allow(unsafe_code)] // named file: descriptors that callers vouch for
mod fd;
mod file;
mod open;

pub use dir::{DirBuilder, DirEntry, ReadDir};
pub use file::File;
pub use open::OpenOptions;
pub use std::fs::{FileTimes, FileType, Metadata, Permissions, TryLockError};

use crate::syscall;
use std::io;
use std::path::{Path, PathBuf};

// Paths are converted outside of the declared call: `as_ref` is the user's code,
// and may do what it likes.

/// Reads a whole file, as [`std::fs::read`] does.
pub fn read<P: AsRef<Path>>(path: P) -> io::Result<Vec<u8>> {
    let path = path.as_ref();
    syscall(|| std::fs::read(path))
}

/// Reads a whole file of text, as [`std::fs::read_to_string`] does.
///
/// ```
/// let limits = heist::run(|| heist::fs::read_to_string("/proc/self/limits"));
/// assert!(limits.unwrap().contains("Max open files"));
/// ```
pub fn read_to_string<P: AsRef<Path>>(path: P) -> io::Result<String> {
    let path = path.as_ref();
    syscall(|| std::fs::read_to_string(path))
}

/// Makes a file of these contents, as [`std::fs::write`] does.
pub fn write<P: AsRef<Path>, C: AsRef<[u8]>>(path: P, contents: C) -> io::Result<()> {
    let (path, contents) = (path.as_ref(), contents.as_ref());
    syscall(|| std::fs::write(path, contents))
}

/// Removes a file, as [`std::fs::remove_file`] does.
pub fn remove_file<P: AsRef<Path>>(path: P) -> io::Result<()> {
    let path = path.as_ref();
    syscall(|| std::fs::remove_file(path))
}

/// What there is to know about a file, as [`std::fs::metadata`] says it.
pub fn metadata<P: AsRef<Path>>(path: P) -> io::Result<Metadata> {
    let path = path.as_ref();
    syscall(|| std::fs::metadata(path))
}

/// The same of a link itself, as [`std::fs::symlink_metadata`] says it.
pub fn symlink_metadata<P: AsRef<Path>>(path: P) -> io::Result<Metadata> {
    let path = path.as_ref();
    syscall(|| std::fs::symlink_metadata(path))
}

/// Gives a file another name, as [`std::fs::rename`] does.
pub fn rename<P: AsRef<Path>, Q: AsRef<Path>>(from: P, to: Q) -> io::Result<()> {
    let (from, to) = (from.as_ref(), to.as_ref());
    syscall(|| std::fs::rename(from, to))
}

/// Copies a file and its permissions, as [`std::fs::copy`] does: in the kernel,
/// where the file systems can.
pub fn copy<P: AsRef<Path>, Q: AsRef<Path>>(from: P, to: Q) -> io::Result<u64> {
    let (from, to) = (from.as_ref(), to.as_ref());
    syscall(|| std::fs::copy(from, to))
}

/// Makes a hard link, as [`std::fs::hard_link`] does.
pub fn hard_link<P: AsRef<Path>, Q: AsRef<Path>>(original: P, link: Q) -> io::Result<()> {
    let (original, link) = (original.as_ref(), link.as_ref());
    syscall(|| std::fs::hard_link(original, link))
}

/// Makes a symbolic link.
#[deprecated(note = "as in std: use os::unix::fs::symlink")]
pub fn soft_link<P: AsRef<Path>, Q: AsRef<Path>>(original: P, link: Q) -> io::Result<()> {
    crate::os::unix::fs::symlink(original, link)
}

/// Where a symbolic link leads to, as [`std::fs::read_link`] says it.
pub fn read_link<P: AsRef<Path>>(path: P) -> io::Result<PathBuf> {
    let path = path.as_ref();
    syscall(|| std::fs::read_link(path))
}

/// The path without links and dots, as [`std::fs::canonicalize`] finds it.
pub fn canonicalize<P: AsRef<Path>>(path: P) -> io::Result<PathBuf> {
    let path = path.as_ref();
    syscall(|| std::fs::canonicalize(path))
}

/// Makes a folder, as [`std::fs::create_dir`] does.
pub fn create_dir<P: AsRef<Path>>(path: P) -> io::Result<()> {
    let path = path.as_ref();
    syscall(|| std::fs::create_dir(path))
}

/// Makes a folder and those above it, as [`std::fs::create_dir_all`] does.
pub fn create_dir_all<P: AsRef<Path>>(path: P) -> io::Result<()> {
    let path = path.as_ref();
    syscall(|| std::fs::create_dir_all(path))
}

/// Removes an empty folder, as [`std::fs::remove_dir`] does.
pub fn remove_dir<P: AsRef<Path>>(path: P) -> io::Result<()> {
    let path = path.as_ref();
    syscall(|| std::fs::remove_dir(path))
}

/// Removes a folder and all that is in it, as [`std::fs::remove_dir_all`] does;
/// does not follow links.
pub fn remove_dir_all<P: AsRef<Path>>(path: P) -> io::Result<()> {
    let path = path.as_ref();
    syscall(|| std::fs::remove_dir_all(path))
}

/// Lists a folder, as [`std::fs::read_dir`] does.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// for entry in heist::fs::read_dir("/proc/self/fd")? {
///     assert!(entry?.file_name().to_str().unwrap().parse::<u32>().is_ok());
/// }
/// # Ok(())
/// # }
/// ```
pub fn read_dir<P: AsRef<Path>>(path: P) -> io::Result<ReadDir> {
    let path = path.as_ref();
    syscall(|| std::fs::read_dir(path)).map(ReadDir::new)
}

/// Changes the permissions of a file, as [`std::fs::set_permissions`] does.
pub fn set_permissions<P: AsRef<Path>>(path: P, perm: Permissions) -> io::Result<()> {
    let path = path.as_ref();
    syscall(|| std::fs::set_permissions(path, perm))
}

/// Whether there is such a file, as [`std::fs::exists`] finds out.
pub fn exists<P: AsRef<Path>>(path: P) -> io::Result<bool> {
    let path = path.as_ref();
    syscall(|| std::fs::exists(path))
}

#[cfg(all(test, not(any(loom, sim))))]
mod tests {
    use super::*;
    use crate::sched::m;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::io::{Read, Write};
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    /// Whether a call, which waits until `end` is done, is declared meanwhile: whether its
    /// P is at hand for others. Sysmon would find out what is not, and hide it.
    fn is_declared<T: Send, U>(call: impl FnOnce() -> T + Send, end: impl FnOnce() -> U) -> bool {
        let runtime = crate::Builder::new().max_procs(1).build().unwrap();
        let (here, sched) = mpsc::channel();
        std::thread::scope(|scope| {
            let calls = scope.spawn(move || {
                runtime.run(move || {
                    here.send(m::current().unwrap().sched).unwrap();
                    call()
                })
            });
            let (sched, start) = (sched.recv().unwrap(), Instant::now());
            // On whichever M: sysmon may have asked the goroutine to leave before.
            let is_declared = || sched.shared.lock().all_ms.iter().any(|m| m.lease.in_call());
            while !is_declared() && start.elapsed() < Duration::from_secs(10) {
                std::thread::yield_now();
            }
            let declared = is_declared();
            // It may begin only now.
            let _end = end();
            calls.join().unwrap();
            declared
        })
    }

    /// Those of which one can make sure that they wait.
    #[test]
    fn calls_are_declared() {
        let path = std::env::temp_dir().join(format!("heist-fifo-{}", std::process::id()));
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let std_open = || std::fs::File::options().read(true).write(true).open(&path).unwrap();
        let write = || std::fs::write(&path, "x").unwrap();
        assert!(is_declared(|| read(&path), write));
        assert!(is_declared(|| read_to_string(&path), write));
        assert!(is_declared(|| File::open(&path), std_open));
        assert!(is_declared(|| File::create(&path), std_open));
        assert!(is_declared(|| OpenOptions::new().write(true).open(&path), std_open));

        // Open for both: it waits neither for a writer nor for a reader.
        let (mut far, near) = (std_open(), File::from(std_open()));
        let mut byte = [0];
        assert!(is_declared(|| (&near).read(&mut byte), || far.write_all(b"x").unwrap()));
        // More than there is room for.
        let (bytes, mut all) = (vec![0; 1 << 20], vec![0; 1 << 20]);
        assert!(is_declared(|| (&near).write(&bytes), || far.read_exact(&mut all).unwrap()));

        std::fs::remove_file(&path).unwrap();
        let (held, file) = (std::fs::File::create(&path).unwrap(), File::open(&path).unwrap());
        held.lock().unwrap();
        assert!(is_declared(|| file.lock_shared(), || held.unlock().unwrap()));
        std::fs::remove_file(&path).unwrap();
    }
}
