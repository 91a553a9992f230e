//! [`File`].

use super::{FileTimes, Metadata, OpenOptions, Permissions, TryLockError};
use crate::syscall;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::SystemTime;

/// An open file: [`std::fs::File`] whose calls let other goroutines run.
///
/// ```
/// use heist::fs::File;
/// use std::io::{Read, Seek, SeekFrom};
///
/// # fn main() -> std::io::Result<()> {
/// heist::run(|| {
///     let mut file = File::open("/proc/self/comm")?;
///     let (mut first, mut again) = (String::new(), String::new());
///     file.read_to_string(&mut first)?;
///     file.seek(SeekFrom::Start(0))?;
///     file.read_to_string(&mut again)?;
///     assert_eq!(first, again);
///     Ok(())
/// })
/// # }
/// ```
///
/// It is made from a [`std::fs::File`] and turned into one by `From`, as it is with
/// an `OwnedFd`. An `Arc<File>` cannot be read from as std's can, since only std may
/// say so of an `Arc`; `&*file` can.
pub struct File(pub(super) std::fs::File);

impl File {
    /// Std's own.
    pub(crate) fn as_std(&self) -> &std::fs::File {
        &self.0
    }

    /// Opens a file for reading, as [`std::fs::File::open`] does.
    pub fn open<P: AsRef<Path>>(path: P) -> io::Result<File> {
        let path = path.as_ref();
        syscall(|| std::fs::File::open(path)).map(File)
    }

    /// Opens a file for writing, empty, as [`std::fs::File::create`] does.
    pub fn create<P: AsRef<Path>>(path: P) -> io::Result<File> {
        let path = path.as_ref();
        syscall(|| std::fs::File::create(path)).map(File)
    }

    /// Makes a file that was not there, as [`std::fs::File::create_new`] does.
    pub fn create_new<P: AsRef<Path>>(path: P) -> io::Result<File> {
        let path = path.as_ref();
        syscall(|| std::fs::File::create_new(path)).map(File)
    }

    /// How else to open one: [`OpenOptions::new`].
    #[must_use]
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// Waits until the disk has it all, as [`std::fs::File::sync_all`] does.
    pub fn sync_all(&self) -> io::Result<()> {
        syscall(|| self.0.sync_all())
    }

    /// Waits until the disk has the contents, as [`std::fs::File::sync_data`] does.
    pub fn sync_data(&self) -> io::Result<()> {
        syscall(|| self.0.sync_data())
    }

    /// Locks the file against others who lock it, as [`std::fs::File::lock`] does.
    /// Whoever waits here holds a thread, but no P.
    pub fn lock(&self) -> io::Result<()> {
        syscall(|| self.0.lock())
    }

    /// Locks the file together with others, as [`std::fs::File::lock_shared`] does.
    pub fn lock_shared(&self) -> io::Result<()> {
        syscall(|| self.0.lock_shared())
    }

    /// Locks the file if nobody has, as [`std::fs::File::try_lock`] does.
    pub fn try_lock(&self) -> Result<(), TryLockError> {
        syscall(|| self.0.try_lock())
    }

    /// Locks the file together with others if it can be had, as
    /// [`std::fs::File::try_lock_shared`] does.
    pub fn try_lock_shared(&self) -> Result<(), TryLockError> {
        syscall(|| self.0.try_lock_shared())
    }

    /// Releases all locks of this file, as [`std::fs::File::unlock`] does.
    pub fn unlock(&self) -> io::Result<()> {
        syscall(|| self.0.unlock())
    }

    /// Cuts the file off or extends it with zeros, as [`std::fs::File::set_len`]
    /// does.
    pub fn set_len(&self, size: u64) -> io::Result<()> {
        syscall(|| self.0.set_len(size))
    }

    /// What there is to know about the file.
    pub fn metadata(&self) -> io::Result<Metadata> {
        syscall(|| self.0.metadata())
    }

    /// Another handle to the same open file, with the same position, as
    /// [`std::fs::File::try_clone`] gives.
    pub fn try_clone(&self) -> io::Result<File> {
        syscall(|| self.0.try_clone()).map(File)
    }

    /// Changes the permissions of the file.
    pub fn set_permissions(&self, perm: Permissions) -> io::Result<()> {
        syscall(|| self.0.set_permissions(perm))
    }

    /// Changes when the file was used, as [`std::fs::File::set_times`] does.
    pub fn set_times(&self, times: FileTimes) -> io::Result<()> {
        syscall(|| self.0.set_times(times))
    }

    /// Whether it is a terminal, as [`IsTerminal`](io::IsTerminal::is_terminal) says
    /// it, which only std may implement.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        io::IsTerminal::is_terminal(&self.0)
    }

    /// Changes when the file was last written.
    pub fn set_modified(&self, time: SystemTime) -> io::Result<()> {
        syscall(|| self.0.set_modified(time))
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Read for &File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        syscall(|| (&self.0).read(buf))
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        syscall(|| (&self.0).read_vectored(bufs))
    }

    // Std's own, for its hint from the size of the file.
    fn read_to_end(&mut self, buf: &mut Vec<u8>) -> io::Result<usize> {
        syscall(|| (&self.0).read_to_end(buf))
    }

    fn read_to_string(&mut self, buf: &mut String) -> io::Result<usize> {
        syscall(|| (&self.0).read_to_string(buf))
    }
}

impl Write for &File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        syscall(|| (&self.0).write(buf))
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        syscall(|| (&self.0).write_vectored(bufs))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(()) // a file has no buffer
    }
}

impl Seek for &File {
    fn seek(&mut self, pos: SeekFrom) -> io::Result<u64> {
        syscall(|| (&self.0).seek(pos))
    }

    fn stream_position(&mut self) -> io::Result<u64> {
        syscall(|| (&self.0).stream_position())
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(bufs)
    }

    fn read_to_end(&mut self, buf: &mut Vec<u8>) -> io::Result<usize> {
        (&*self).read_to_end(buf)
    }

    fn read_to_string(&mut self, buf: &mut String) -> io::Result<usize> {
        (&*self).read_to_string(buf)
    }
}

impl Write for File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self).write(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self).flush()
    }
}

impl Seek for File {
    fn seek(&mut self, pos: SeekFrom) -> io::Result<u64> {
        (&*self).seek(pos)
    }

    fn stream_position(&mut self) -> io::Result<u64> {
        (&*self).stream_position()
    }
}

impl FileExt for File {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        syscall(|| self.0.read_at(buf, offset))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        syscall(|| self.0.write_at(buf, offset))
    }
}
