//! Pipes.

use super::fd;
use super::pollable::Pollable;
use super::splice::Stream;
use super::whole;
use crate::sched::netpoll::Side;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::Location;

/// Makes a pipe: what is written to one end is read from the other.
/// [`std::io::pipe`] whose ends park.
///
/// Both ends are in non-blocking mode while they are here, and leave it when they are
/// turned into something else, a child's [`Stdio`](std::process::Stdio) say: a program
/// that does not know of it would fail. Clones share the mode, so that one that is
/// kept then holds its thread while it waits, though not its P.
///
/// ```
/// use std::io::{Read, Write};
///
/// # fn main() -> std::io::Result<()> {
/// let (mut reader, mut writer) = heist::io::pipe()?;
/// writer.write_all(b"ping")?;
/// drop(writer);
/// let mut text = String::new();
/// reader.read_to_string(&mut text)?;
/// assert_eq!(text, "ping");
/// # Ok(())
/// # }
/// ```
pub fn pipe() -> io::Result<(PipeReader, PipeWriter)> {
    let (reader, writer) = std::io::pipe()?;
    Ok((PipeReader::try_from_std(reader)?, PipeWriter::try_from_std(writer)?))
}

/// The end of a pipe that is read from.
pub struct PipeReader(pub(super) Pollable<std::io::PipeReader>);

/// The end of a pipe that is written to.
pub struct PipeWriter(pub(super) Pollable<std::io::PipeWriter>);

impl PipeReader {
    pub(super) fn try_from_std(pipe: std::io::PipeReader) -> io::Result<PipeReader> {
        fd::set_nonblocking(&pipe, true)?;
        Ok(PipeReader(Pollable::new(pipe)))
    }

    /// Another handle to the same end.
    pub fn try_clone(&self) -> io::Result<PipeReader> {
        Ok(PipeReader(Pollable::new(self.0.get().try_clone()?)))
    }
}

impl PipeWriter {
    pub(super) fn try_from_std(pipe: std::io::PipeWriter) -> io::Result<PipeWriter> {
        fd::set_nonblocking(&pipe, true)?;
        Ok(PipeWriter(Pollable::new(pipe)))
    }

    /// Another handle to the same end.
    pub fn try_clone(&self) -> io::Result<PipeWriter> {
        Ok(PipeWriter(Pollable::new(self.0.get().try_clone()?)))
    }
}

/// Both ends are in non-blocking mode as they are.
macro_rules! stream {
    ($end:ident) => {
        impl Stream for $end {
            fn call(
                &self,
                side: Side,
                site: &'static Location<'static>,
                call: &mut dyn FnMut(BorrowedFd<'_>) -> io::Result<usize>,
            ) -> io::Result<usize> {
                self.0.run(side, site, |pipe| call(pipe.as_fd()))
            }

            fn lend(&self, _on: bool) -> io::Result<()> {
                Ok(())
            }

            fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
                let mut rest = bytes;
                while !rest.is_empty() {
                    let write = |pipe: &_, done| fd::write(AsFd::as_fd(pipe), &rest[done..]);
                    rest = &rest[self.0.write(rest.len(), write)?..];
                }
                Ok(())
            }
        }
    };
}

stream!(PipeReader);
stream!(PipeWriter);

impl Read for &PipeReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(|mut pipe| pipe.read(buf))
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.0.read(|mut pipe| pipe.read_vectored(bufs))
    }
}

impl Read for PipeReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(bufs)
    }
}

impl Write for &PipeWriter {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.write(buf.len(), |mut pipe, done| pipe.write(&buf[done..]))
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let len = bufs.iter().map(|buf| buf.len()).sum();
        self.0.write(len, |mut pipe, done| match done {
            0 => pipe.write_vectored(bufs),
            _ => pipe.write_vectored(&whole::rest(bufs, done)),
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for PipeWriter {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self).write(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for PipeReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for PipeWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
