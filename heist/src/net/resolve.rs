//! From names to addresses.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

/// What `addr` stands for. Asking a name server may take long.
pub(super) fn resolve(addr: impl ToSocketAddrs) -> io::Result<Vec<SocketAddr>> {
    off_the_p(|| addr.to_socket_addrs().map(Iterator::collect))
}

/// The first of what `addr` stands for.
pub(super) fn resolve_first(addr: impl ToSocketAddrs) -> io::Result<Option<SocketAddr>> {
    off_the_p(|| Ok(addr.to_socket_addrs()?.next()))
}

/// Makes a call that may block its thread.
pub(super) fn off_the_p<R>(f: impl FnOnce() -> R) -> R {
    crate::sched::syscall::syscall(f)
}

/// The first address with which `f` succeeds, as std tries them.
pub(super) fn each_addr<T>(
    addrs: &[SocketAddr],
    mut f: impl FnMut(&SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = None;
    for addr in addrs {
        match f(addr) {
            Ok(value) => return Ok(value),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, "could not resolve to any addresses")
    }))
}
