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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::m;
    use std::vec;

    /// A name. Whoever looks it up says whether its P can be taken meanwhile.
    struct Name;

    impl ToSocketAddrs for Name {
        type Iter = vec::IntoIter<SocketAddr>;

        fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
            let declared = m::current().is_some_and(|m| m.lease.in_call());
            Ok(vec![SocketAddr::from(([127, 0, 0, 1], u16::from(declared)))].into_iter())
        }
    }

    #[test]
    fn names_are_looked_up_in_a_declared_call() {
        let runtime = crate::Builder::new().max_procs(1).build().unwrap();
        let (all, first) = runtime.run(|| (resolve(Name).unwrap(), resolve_first(Name).unwrap()));
        assert_eq!(all[0].port(), 1);
        assert_eq!(first.map(|first| first.port()), Some(1));
    }
}
