//! Streams whose bytes [`io::copy`](crate::io::copy) moves inside the kernel.

use super::{TcpStream, UnixStream};
use crate::io::splice::Stream;
use crate::sched::netpoll::Side;
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::panic::Location;

macro_rules! stream {
    ($stream:ident, $run:ident) => {
        impl Stream for $stream {
            fn call(
                &self,
                side: Side,
                site: &'static Location<'static>,
                call: &mut dyn FnMut(BorrowedFd<'_>) -> io::Result<usize>,
            ) -> io::Result<usize> {
                self.socket.$run(side, site, call)
            }

            fn lend(&self, on: bool) -> io::Result<()> {
                self.socket.lend(on)
            }

            fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
                Write::write_all(&mut &*self, bytes)
            }
        }
    };
}

stream!(TcpStream, run);
stream!(UnixStream, run_unix);
