//! The network: std's sockets, whose calls park the goroutine and not its thread.
//!
//! The types have std's names, methods, errors and formats, so that changing
//! `std::net` to `heist::net` is all that a synchronous program or crate needs. The
//! Unix ones, which std keeps in `std::os::unix::net`, are here too, and in [`unix`]
//! under that module's names. On a plain OS
//! thread the same calls block the thread.
//!
//! ```
//! use heist::net::{TcpListener, TcpStream};
//! use std::io::{Read, Write};
//!
//! heist::run(|| {
//!     let listener = TcpListener::bind("127.0.0.1:0")?;
//!     let address = listener.local_addr()?;
//!     let echo = heist::go(move || {
//!         let (mut stream, _peer) = listener.accept()?;
//!         std::io::copy(&mut stream.try_clone()?, &mut stream)
//!     });
//!     let mut stream = TcpStream::connect(address)?;
//!     stream.write_all(b"hello")?;
//!     stream.shutdown(heist::net::Shutdown::Write)?;
//!     let mut answer = String::new();
//!     stream.read_to_string(&mut answer)?;
//!     assert_eq!(answer, "hello");
//!     assert_eq!(echo.join().unwrap()?, 5);
//!     Ok::<(), std::io::Error>(())
//! })?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Beyond std
//!
//! - `set_deadline`, `set_read_deadline` and `set_write_deadline`, as Go has them: a
//!   moment at which calls begin to fail, those that wait now included.
//! - `close`, which ends the calls that wait on a socket from another goroutine. A
//!   listener's [`incoming`](TcpListener::incoming) ends then, too, on all its handles:
//!   close it, wait for the connections that there are, and a server has drained.
//! - [`incoming`](TcpListener::incoming) goes on when a connection was given up
//!   before it was accepted, and pauses while the process has no descriptors left.
//!
//! # What a call costs
//!
//! A call is tried first, and only one that would block waits. A descriptor is
//! registered with the kernel when it first waits, and not touched again until it is
//! closed. A request on a busy connection is one read and one write.
//!
//! | file | what |
//! |---|---|
//! | `socket.rs` | what all sockets are made of: std's, and how to wait for it |
//! | `tcp_listener.rs`, `tcp_stream.rs`, `udp_socket.rs` | what users see |
//! | `unix_listener.rs`, `unix_stream.rs`, `unix_datagram.rs` | the same of Unix sockets |
//! | `incoming.rs` | accepting one connection after the other, and surviving it |
//! | `resolve.rs` | from names to addresses |
//! | `forward.rs` | what std's sockets do well already |
//! | `fd.rs` | sockets and descriptors, one from the other |
//! | `lend.rs` | streams whose bytes `io::copy` moves inside the kernel |

#[allow(unsafe_code)] // named file: raw descriptors
mod fd;
mod forward;
mod incoming;
mod lend;
mod resolve;
mod socket;
mod tcp_listener;
mod tcp_stream;
mod udp_socket;
mod unix_datagram;
mod unix_listener;
mod unix_stream;

pub use std::net::{
    AddrParseError, IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, SocketAddrV4, SocketAddrV6,
    ToSocketAddrs,
};
pub use tcp_listener::{Incoming, IntoIncoming, TcpListener};
pub use tcp_stream::TcpStream;
pub use udp_socket::UdpSocket;
pub use unix_datagram::UnixDatagram;
pub use unix_listener::UnixListener;
pub use unix_stream::UnixStream;

use std::os::unix::net::SocketAddr as UnixAddr;

/// The Unix sockets under the names that they have in [`std::os::unix::net`].
pub mod unix {
    pub use super::unix_listener::Incoming;
    pub use super::{UnixDatagram, UnixListener, UnixStream};
    pub use std::os::unix::net::SocketAddr;
}
