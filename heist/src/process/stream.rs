//! The standard streams of a child, seen from its parent: ends of pipes.
//!
//! Both ends of a pipe are open files of their own, so that the child's stays as
//! blocking as programs expect.

use crate::io::{PipeReader, PipeWriter};
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::process::Stdio;

/// What all three are.
macro_rules! stream {
    ($stream:ident, $pipe:ident, $text:literal) => {
        #[doc = $text]
        pub struct $stream($pipe);

        impl $stream {
            pub(super) fn new(stream: std::process::$stream) -> io::Result<$stream> {
                let pipe = std::io::$pipe::from(OwnedFd::from(stream));
                Ok($stream(pipe.try_into()?))
            }
        }

        impl $stream {
            /// What it is made of.
            pub(crate) fn pipe(&self) -> &$pipe {
                &self.0
            }
        }

        impl From<$stream> for OwnedFd {
            fn from(stream: $stream) -> OwnedFd {
                stream.0.into()
            }
        }

        impl From<OwnedFd> for $stream {
            fn from(fd: OwnedFd) -> $stream {
                $stream(fd.into())
            }
        }

        impl From<$stream> for std::process::$stream {
            fn from(stream: $stream) -> std::process::$stream {
                OwnedFd::from(stream).into()
            }
        }

        impl From<$stream> for Stdio {
            fn from(stream: $stream) -> Stdio {
                stream.0.into()
            }
        }

        impl AsFd for $stream {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.0.as_fd()
            }
        }

        impl AsRawFd for $stream {
            fn as_raw_fd(&self) -> RawFd {
                self.0.as_raw_fd()
            }
        }

        impl IntoRawFd for $stream {
            fn into_raw_fd(self) -> RawFd {
                self.0.into_raw_fd()
            }
        }

        impl fmt::Debug for $stream {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($stream)).finish_non_exhaustive()
            }
        }
    };
}

macro_rules! reader {
    ($stream:ident) => {
        impl Read for $stream {
            fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
                self.0.read(buf)
            }

            fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                self.0.read_vectored(bufs)
            }
        }
    };
}

stream!(ChildStdin, PipeWriter, "What a child reads from.");
stream!(ChildStdout, PipeReader, "What a child writes to.");
stream!(ChildStderr, PipeReader, "What a child reports errors to.");
reader!(ChildStdout);
reader!(ChildStderr);

impl Write for ChildStdin {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.write(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for &ChildStdin {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&self.0).write(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        (&self.0).write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
