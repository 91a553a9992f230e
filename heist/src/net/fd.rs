//! Sockets and descriptors, one from the other.

use super::socket::Socket;
use super::{TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

/// All conversions of a type, given those from and to std's.
macro_rules! conversions {
    ($type:ident, $std:ty, $from:expr, $into:expr) => {
        /// Takes it as it is, with its timeouts, and whether it is non-blocking.
        impl From<$std> for $type {
            fn from(socket: $std) -> Self {
                let from: fn($std) -> Socket<$std> = $from;
                $type { socket: from(socket) }
            }
        }

        impl From<$type> for $std {
            fn from(socket: $type) -> Self {
                let into: fn(Socket<$std>) -> $std = $into;
                into(socket.socket)
            }
        }

        impl From<OwnedFd> for $type {
            fn from(fd: OwnedFd) -> Self {
                <$std>::from(fd).into()
            }
        }

        impl From<$type> for OwnedFd {
            fn from(socket: $type) -> Self {
                <$std>::from(socket).into()
            }
        }

        impl AsFd for $type {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.socket.fd()
            }
        }

        impl AsRawFd for $type {
            fn as_raw_fd(&self) -> RawFd {
                self.socket.fd().as_raw_fd()
            }
        }

        impl IntoRawFd for $type {
            fn into_raw_fd(self) -> RawFd {
                <$std>::from(self).into_raw_fd()
            }
        }

        impl FromRawFd for $type {
            unsafe fn from_raw_fd(fd: RawFd) -> Self {
                // SAFETY: the caller's promise: the descriptor is open and theirs to
                // give away.
                unsafe { <$std>::from_raw_fd(fd) }.into()
            }
        }
    };
}

macro_rules! plain {
    ($type:ident, $std:ty) => {
        conversions!(
            $type,
            $std,
            |socket| {
                let timeouts = [socket.read_timeout(), socket.write_timeout()];
                Socket::adopt(socket, timeouts)
            },
            Socket::into_inner
        );
    };
}

/// Listeners are non-blocking underneath, whatever they look like.
macro_rules! listener {
    ($type:ident, $std:ty) => {
        conversions!(
            $type,
            $std,
            |socket| {
                let socket = Socket::adopt(socket, [Ok(None), Ok(None)]);
                // If the kernel refuses, accepting blocks the thread.
                let _ = socket.inner().set_nonblocking(true);
                socket
            },
            |socket| {
                let nonblocking = socket.is_nonblocking();
                let listener = socket.into_inner();
                let _ = listener.set_nonblocking(nonblocking);
                listener
            }
        );
    };
}

plain!(TcpStream, std::net::TcpStream);
listener!(TcpListener, std::net::TcpListener);
plain!(UdpSocket, std::net::UdpSocket);
plain!(UnixStream, std::os::unix::net::UnixStream);
listener!(UnixListener, std::os::unix::net::UnixListener);
plain!(UnixDatagram, std::os::unix::net::UnixDatagram);
