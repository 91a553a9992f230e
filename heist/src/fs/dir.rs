//! Folders: [`ReadDir`], [`DirEntry`], [`DirBuilder`].

use super::{FileType, Metadata};
use crate::syscall;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::unix::fs::{DirBuilderExt, DirEntryExt};
use std::path::{Path, PathBuf};

/// What is in a folder, one after the other: made by [`read_dir`](super::read_dir).
pub struct ReadDir(std::fs::ReadDir);

impl ReadDir {
    pub(super) fn new(entries: std::fs::ReadDir) -> ReadDir {
        ReadDir(entries)
    }
}

impl Iterator for ReadDir {
    type Item = io::Result<DirEntry>;

    fn next(&mut self) -> Option<io::Result<DirEntry>> {
        Some(syscall(|| self.0.next())?.map(DirEntry))
    }
}

impl fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One of what is in a folder.
pub struct DirEntry(std::fs::DirEntry);

impl DirEntry {
    /// The path that was given to `read_dir`, and the name.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.0.path()
    }

    /// What there is to know about it; of a link, about the link.
    pub fn metadata(&self) -> io::Result<Metadata> {
        syscall(|| self.0.metadata())
    }

    /// What it is; of a link, that it is one.
    pub fn file_type(&self) -> io::Result<FileType> {
        syscall(|| self.0.file_type())
    }

    /// Its name, without the folder.
    #[must_use]
    pub fn file_name(&self) -> OsString {
        self.0.file_name()
    }
}

impl DirEntryExt for DirEntry {
    fn ino(&self) -> u64 {
        self.0.ino()
    }
}

impl fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How to make a folder: [`std::fs::DirBuilder`].
///
/// ```
/// use heist::fs::{self, DirBuilder};
/// use std::os::unix::fs::DirBuilderExt;
///
/// # fn main() -> std::io::Result<()> {
/// let top = std::env::temp_dir().join(format!("heist-dir-{}", std::process::id()));
/// DirBuilder::new().recursive(true).mode(0o700).create(top.join("a/b"))?;
/// assert!(top.join("a/b").is_dir());
/// fs::remove_dir_all(&top)
/// # }
/// ```
pub struct DirBuilder(std::fs::DirBuilder);

impl DirBuilder {
    /// Makes one folder, with the usual permissions.
    #[allow(clippy::new_without_default)] // std's has none either
    #[must_use]
    pub fn new() -> DirBuilder {
        DirBuilder(std::fs::DirBuilder::new())
    }

    /// Whether to make those above, too; then one that is there is no error.
    pub fn recursive(&mut self, recursive: bool) -> &mut DirBuilder {
        self.0.recursive(recursive);
        self
    }

    /// Makes the folder.
    pub fn create<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        let path = path.as_ref();
        syscall(|| self.0.create(path))
    }
}

impl DirBuilderExt for DirBuilder {
    fn mode(&mut self, mode: u32) -> &mut DirBuilder {
        self.0.mode(mode);
        self
    }
}

impl fmt::Debug for DirBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
