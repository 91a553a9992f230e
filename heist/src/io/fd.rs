//! System calls on descriptors, and conversions from and to them.

use super::{PipeReader, PipeWriter, Stderr, StderrLock, Stdin, StdinLock, Stdout, StdoutLock};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::process::Stdio;

/// Puts a descriptor into non-blocking mode, or back. The mode belongs to the open
/// file, which others may share.
pub(crate) fn set_nonblocking(fd: &impl AsFd, on: bool) -> io::Result<()> {
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: takes no pointers; the descriptor is borrowed, and thus open.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        if flags < 0 {
            return Err(io::Error::last_os_error());
        }
        let wanted = if on { flags | libc::O_NONBLOCK } else { flags & !libc::O_NONBLOCK };
        if wanted != flags && libc::fcntl(fd, libc::F_SETFL, wanted) < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Whether a call that reads would return at once.
pub(crate) fn is_readable(fd: &impl AsFd) -> bool {
    is_ready(fd, libc::POLLIN)
}

/// Whether there is an error or an end to tell. A call would take the error away.
pub(crate) fn has_failed(fd: &impl AsFd) -> bool {
    is_ready(fd, 0) // those two need not be asked for
}

/// Whether a socket was shut down for reading.
pub(crate) fn is_shut(fd: &impl AsFd) -> bool {
    poll(fd, libc::POLLRDHUP).1 & libc::POLLRDHUP != 0
}

/// Whether a descriptor is a socket that carries a stream.
pub(super) fn is_stream_socket(fd: BorrowedFd<'_>) -> bool {
    rustix::net::sockopt::socket_type(fd) == Ok(rustix::net::SocketType::STREAM)
}

fn is_ready(fd: &impl AsFd, events: libc::c_short) -> bool {
    poll(fd, events).0 != 0 // an error is left to the call itself
}

/// What poll(2) returns for one descriptor, without waiting, and which of these events
/// there are, or an error or an end.
fn poll(fd: &impl AsFd, events: libc::c_short) -> (libc::c_int, libc::c_short) {
    let mut poll = libc::pollfd { fd: fd.as_fd().as_raw_fd(), events, revents: 0 };
    // SAFETY: one live entry.
    let n = unsafe { libc::poll(&mut poll, 1, 0) };
    (n, poll.revents)
}

/// The descriptor of standard input.
pub(crate) fn standard_input() -> BorrowedFd<'static> {
    // SAFETY: a number that is not -1. By custom nobody closes it; if somebody has,
    // calls fail with EBADF.
    unsafe { BorrowedFd::borrow_raw(libc::STDIN_FILENO) }
}

/// Reads into a buffer.
pub(crate) fn read(fd: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<usize> {
    // SAFETY: pointer and length are of a live slice.
    let n = unsafe { libc::read(fd.as_raw_fd(), buf.as_mut_ptr().cast(), buf.len()) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Writes from a buffer.
pub(super) fn write(fd: BorrowedFd<'_>, buf: &[u8]) -> io::Result<usize> {
    // SAFETY: pointer and length are of a live slice.
    let n = unsafe { libc::write(fd.as_raw_fd(), buf.as_ptr().cast(), buf.len()) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Whether a call may wait in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    Yes,
    No,
}

/// Moves bytes from one descriptor to another, of which one is a pipe.
pub(super) fn splice(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    most: usize,
    wait: Wait,
) -> io::Result<usize> {
    let nowhere = std::ptr::null_mut();
    let flags = match wait {
        Wait::Yes => libc::SPLICE_F_MOVE,
        Wait::No => libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK,
    };
    // SAFETY: both descriptors are open, and there are no offsets.
    let n =
        unsafe { libc::splice(from.as_raw_fd(), nowhere, to.as_raw_fd(), nowhere, most, flags) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Moves bytes from where a file is read next to a descriptor.
pub(super) fn send_file(
    file: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    most: usize,
) -> io::Result<usize> {
    // SAFETY: both descriptors are open, and there is no offset.
    let n = unsafe { libc::sendfile(to.as_raw_fd(), file.as_raw_fd(), std::ptr::null_mut(), most) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Conversions of an end of a pipe. What leaves us leaves non-blocking mode; that
/// cannot fail for a descriptor that is open.
macro_rules! pipe_end {
    ($end:ident) => {
        impl From<$end> for std::io::$end {
            fn from(pipe: $end) -> std::io::$end {
                let pipe = pipe.0.into_inner();
                let _ = set_nonblocking(&pipe, false);
                pipe
            }
        }

        impl From<$end> for OwnedFd {
            fn from(pipe: $end) -> OwnedFd {
                std::io::$end::from(pipe).into()
            }
        }

        impl From<$end> for Stdio {
            fn from(pipe: $end) -> Stdio {
                std::io::$end::from(pipe).into()
            }
        }

        impl TryFrom<std::io::$end> for $end {
            type Error = io::Error;

            /// Fails if the descriptor does not let itself be put into non-blocking
            /// mode.
            fn try_from(pipe: std::io::$end) -> io::Result<$end> {
                $end::try_from_std(pipe)
            }
        }

        impl From<OwnedFd> for $end {
            /// As std, it takes every descriptor. One that cannot be put into
            /// non-blocking mode is no open file, and fails when it is used.
            fn from(fd: OwnedFd) -> $end {
                let _ = set_nonblocking(&fd, true);
                $end(super::pollable::Pollable::new(fd.into()))
            }
        }

        impl AsFd for $end {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.0.get().as_fd()
            }
        }

        impl AsRawFd for $end {
            fn as_raw_fd(&self) -> RawFd {
                self.0.get().as_raw_fd()
            }
        }

        impl IntoRawFd for $end {
            fn into_raw_fd(self) -> RawFd {
                OwnedFd::from(self).into_raw_fd()
            }
        }

        impl FromRawFd for $end {
            unsafe fn from_raw_fd(fd: RawFd) -> $end {
                // SAFETY: the caller owns the descriptor and gives it away.
                unsafe { OwnedFd::from_raw_fd(fd) }.into()
            }
        }
    };
}

pipe_end!(PipeReader);
pipe_end!(PipeWriter);

/// The descriptors of the standard streams.
macro_rules! standard {
    ($($stream:ty = $number:ident),*) => {$(
        impl AsRawFd for $stream {
            fn as_raw_fd(&self) -> RawFd {
                libc::$number
            }
        }

        impl AsFd for $stream {
            fn as_fd(&self) -> BorrowedFd<'_> {
                // SAFETY: a number that is not -1, of a stream that by custom nobody
                // closes.
                unsafe { BorrowedFd::borrow_raw(libc::$number) }
            }
        }

        impl $stream {
            /// Whether it is a terminal, as
            /// [`IsTerminal`](std::io::IsTerminal::is_terminal) says it, which only
            /// std may implement.
            #[must_use]
            pub fn is_terminal(&self) -> bool {
                std::io::IsTerminal::is_terminal(&self.as_fd())
            }
        }
    )*};
}

standard! {
    Stdin = STDIN_FILENO, StdinLock<'_> = STDIN_FILENO,
    Stdout = STDOUT_FILENO, StdoutLock<'_> = STDOUT_FILENO,
    Stderr = STDERR_FILENO, StderrLock<'_> = STDERR_FILENO
}

impl From<Stdout> for Stdio {
    fn from(_: Stdout) -> Stdio {
        std::io::stdout().into()
    }
}

impl From<Stderr> for Stdio {
    fn from(_: Stderr) -> Stdio {
        std::io::stderr().into()
    }
}
