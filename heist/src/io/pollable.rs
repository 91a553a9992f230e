//! Descriptors of the poller that are not sockets: pipes, terminals, children.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// A descriptor that can be waited for.
pub(crate) struct Pollable<T: AsFd> {
    inner: T,
}

impl<T: AsFd> Pollable<T> {
    /// A descriptor in non-blocking mode.
    pub(crate) fn new(inner: T) -> Pollable<T> {
        Pollable { inner }
    }

    pub(crate) fn get(&self) -> &T {
        &self.inner
    }

    pub(crate) fn into_inner(self) -> T {
        self.inner
    }

    /// Calls until it would not block.
    pub(crate) fn read<R>(&self, mut call: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        loop {
            match call(&self.inner) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => crate::thread::yield_now(),
                result => return result,
            }
        }
    }

    /// The same, for a call that writes.
    pub(crate) fn write<R>(&self, call: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        self.read(call)
    }

    /// Waits until a call that reads would not block, whatever its mode. Returns at
    /// once for what the kernel does not poll.
    pub(crate) fn wait_readable(&self) -> io::Result<()> {
        self.read(|fd| match super::fd::is_readable(fd) {
            true => Ok(()),
            false => Err(io::ErrorKind::WouldBlock.into()),
        })
    }
}

impl<T: AsFd> AsFd for Pollable<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

impl<T: AsFd + fmt::Debug> fmt::Debug for Pollable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
