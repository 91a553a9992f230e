//! Standard input.
//!
//! Its open file is shared with the shell that started the program, and with whoever
//! else reads from the terminal: put into non-blocking mode it would be so for all of
//! them, also when the program has ended. So it stays as it is, and a read happens in
//! two steps: wait until there is something, in the poller, and then read, by a
//! declared call. If another process was faster, that call waits, and holds a thread.
//!
//! The kernel does not poll files of a disk, as they are always ready; those are just
//! read.

use super::fd;
use super::pollable::Pollable;
use crate::sync::{Mutex, MutexGuard, PoisonError};
use crate::syscall;
use std::fmt;
use std::io::{self, BufRead, BufReader, IoSliceMut, Lines, Read};

static STDIN: Mutex<Option<BufReader<Raw>>> = Mutex::new(None);

/// Standard input: [`std::io::stdin`] that parks.
///
/// It has a buffer of its own: what one of the two has taken into its buffer, the
/// other does not see.
///
/// ```no_run
/// heist::run(|| {
///     for line in heist::io::stdin().lines() {
///         println!("{} characters", line.unwrap().chars().count());
///     }
/// });
/// ```
#[must_use]
pub fn stdin() -> Stdin {
    Stdin { private: () }
}

/// The stream that [`stdin`] gives.
pub struct Stdin {
    private: (),
}

/// Keeps others who read by [`Stdin`] waiting.
pub struct StdinLock<'a> {
    reader: MutexGuard<'a, Option<BufReader<Raw>>>,
}

impl Stdin {
    /// Waits until nobody else reads, and keeps it so until the lock is dropped.
    #[must_use]
    #[track_caller]
    pub fn lock(&self) -> StdinLock<'static> {
        StdinLock { reader: STDIN.lock().unwrap_or_else(PoisonError::into_inner) }
    }

    /// Reads a line, as [`BufRead::read_line`] does.
    #[track_caller]
    pub fn read_line(&self, buf: &mut String) -> io::Result<usize> {
        self.lock().read_line(buf)
    }

    /// Reads line by line, and keeps the lock meanwhile.
    #[must_use]
    #[track_caller]
    pub fn lines(self) -> Lines<StdinLock<'static>> {
        self.lock().lines()
    }
}

impl StdinLock<'_> {
    fn reader(&mut self) -> &mut BufReader<Raw> {
        self.reader.get_or_insert_with(|| BufReader::new(Raw::new()))
    }
}

impl Read for StdinLock<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.reader().read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.reader().read_vectored(bufs)
    }

    fn read_to_end(&mut self, buf: &mut Vec<u8>) -> io::Result<usize> {
        self.reader().read_to_end(buf)
    }

    fn read_to_string(&mut self, buf: &mut String) -> io::Result<usize> {
        self.reader().read_to_string(buf)
    }
}

impl BufRead for StdinLock<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.reader().fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.reader().consume(amount);
    }
}

impl Read for &Stdin {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.lock().read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.lock().read_vectored(bufs)
    }

    fn read_to_end(&mut self, buf: &mut Vec<u8>) -> io::Result<usize> {
        self.lock().read_to_end(buf)
    }

    fn read_to_string(&mut self, buf: &mut String) -> io::Result<usize> {
        self.lock().read_to_string(buf)
    }

    fn read_exact(&mut self, buf: &mut [u8]) -> io::Result<()> {
        self.lock().read_exact(buf)
    }
}

impl Read for Stdin {
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

    fn read_exact(&mut self, buf: &mut [u8]) -> io::Result<()> {
        (&*self).read_exact(buf)
    }
}

impl fmt::Debug for Stdin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { private: () } = self;
        f.debug_struct("Stdin").finish_non_exhaustive()
    }
}

impl fmt::Debug for StdinLock<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StdinLock").finish_non_exhaustive()
    }
}

/// The descriptor, without a buffer.
struct Raw(Pollable<std::os::fd::BorrowedFd<'static>>);

impl Raw {
    fn new() -> Raw {
        Raw(Pollable::new(fd::standard_input()))
    }
}

impl Read for Raw {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.wait_readable()?;
        match syscall(|| fd::read(*self.0.get(), buf)) {
            // As std: a program without standard input reads nothing.
            Err(error) if error.raw_os_error() == Some(libc::EBADF) => Ok(0),
            result => result,
        }
    }
}
