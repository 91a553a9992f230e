//! [`copy`].

use super::fd::{self, Wait};
use super::splice::{End, Lent, Stream};
use crate::fs::File;
use crate::sched::netpoll::Side;
use crate::syscall;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::Location;

/// So much goes through at once: what a pipe has room for.
const AT_ONCE: usize = 64 << 10;

/// Copies until the end, and returns how many bytes that were: [`std::io::copy`].
///
/// Between files, pipes, the streams of a child and sockets of heist (themselves or
/// references to them) the bytes stay in the kernel: by sendfile(2) from a file, by
/// splice(2) and a pipe from a stream. In front of a server that takes half of the
/// CPU time that a buffer takes, for large transfers.
/// Everything else is std's.
///
/// A socket is in non-blocking mode meanwhile, which those notice who use its
/// descriptor behind its back.
///
/// ```
/// use heist::io::{self, Read};
/// use heist::net::{Shutdown, TcpListener, TcpStream};
///
/// # fn main() -> io::Result<()> {
/// heist::run(|| {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let mut stream = TcpStream::connect(listener.local_addr()?)?;
///     let served = heist::go(move || {
///         let mut file = heist::fs::File::open("/etc/passwd")?;
///         io::copy(&mut file, &mut listener.accept()?.0)
///     });
///     let mut bytes = Vec::new();
///     stream.read_to_end(&mut bytes)?;
///     assert_eq!(served.join().unwrap()?, bytes.len() as u64);
///     Ok(())
/// })
/// # }
/// ```
#[track_caller]
pub fn copy<R, W>(reader: &mut R, writer: &mut W) -> io::Result<u64>
where
    R: ?Sized + Read,
    W: ?Sized + Write,
{
    let copied = match (End::of(reader), End::of(writer)) {
        (Some(from), Some(to)) => match in_kernel(from, to, Location::caller())? {
            Copied::All(copied) => return Ok(copied),
            Copied::Some(copied) => copied,
        },
        _ => 0,
    };
    // What the kernel does not do.
    Ok(copied + std::io::copy(reader, writer)?)
}

/// How much the kernel has copied.
enum Copied {
    /// There was no more. A terminal, say, would go on if it were asked again.
    All(u64),
    /// It cannot copy the rest.
    Some(u64),
}

fn in_kernel(from: End<'_>, to: End<'_>, site: &'static Location<'static>) -> io::Result<Copied> {
    match (from, to) {
        // Std knows how, for its own files.
        (End::File(from), End::File(to)) => {
            syscall(|| std::io::copy(&mut from.as_std(), &mut to.as_std())).map(Copied::All)
        }
        (End::File(from), End::Stream(to)) => send_file(from, to, site),
        (End::Stream(from), to) => splice(from, to, site),
    }
}

/// Whether a call failed since it cannot be done with these descriptors at all.
fn cannot(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS | libc::EPERM | libc::EBADF))
}

fn send_file(from: &File, to: &dyn Stream, site: &'static Location<'static>) -> io::Result<Copied> {
    let _lent = Lent::new(to)?;
    let mut copied = 0;
    loop {
        // The disk may take its time, too.
        let sent = to.call(Side::Write, site, &mut |to| {
            syscall(|| fd::send_file(from.as_fd(), to, AT_ONCE))
        });
        match sent {
            // Some files have no length, and then nothing to send, but can be read.
            Ok(0) => return Ok(Copied::Some(copied)),
            Ok(n) => copied += n as u64,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if cannot(&error) => return Ok(Copied::Some(copied)),
            Err(error) => return Err(error),
        }
    }
}

fn splice(from: &dyn Stream, to: End<'_>, site: &'static Location<'static>) -> io::Result<Copied> {
    let _from = Lent::new(from)?;
    let _to = match to {
        End::Stream(to) => Some(Lent::new(to)?),
        End::File(_) => None,
    };
    // Empty whenever something is taken in, so that a call that would block waits for
    // the stream, and full of what is to go out, likewise.
    let (outlet, inlet) = std::io::pipe()?;
    let mut copied = 0;
    loop {
        let mut refused = false;
        let taken = from.call(Side::Read, site, &mut |from| {
            let taken = fd::splice(from, inlet.as_fd(), AT_ONCE, Wait::No);
            let stops = match &taken {
                // As at its end, once the peer has closed. To ask a terminal again would
                // be to go on after its end.
                Ok(0) => fd::is_stream_socket(from),
                // Ready, it was said.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::mem::replace(&mut refused, true)
                }
                _ => false,
            };
            // Before a byte out of band the kernel splices no more. Who reads gets past it,
            // or finds the end.
            if stops { by_hand(from, inlet.as_fd()) } else { taken }
        });
        let mut left = match taken {
            Ok(0) => return Ok(Copied::All(copied)),
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if cannot(&error) => return Ok(Copied::Some(copied)),
            Err(error) => return Err(error),
        };
        copied += left as u64;
        while left > 0 {
            let given = match to {
                End::Stream(to) => {
                    let give =
                        &mut |to: BorrowedFd<'_>| fd::splice(outlet.as_fd(), to, left, Wait::No);
                    to.call(Side::Write, site, give)
                }
                // It may be a full pipe.
                End::File(to) => {
                    syscall(|| fd::splice(outlet.as_fd(), to.as_fd(), left, Wait::Yes))
                }
            };
            match given {
                Ok(n) => left -= n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A file that is appended to, say: what was taken in goes by hand.
                Err(error) if cannot(&error) => {
                    let mut rest = vec![0; left];
                    (&outlet).read_exact(&mut rest)?;
                    to.write_all(&rest)?;
                    return Ok(Copied::Some(copied));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Takes a little from a stream, for an empty pipe.
fn by_hand(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<usize> {
    let mut bytes = [0; 4096]; // which a pipe always has room for
    let n = fd::read(from, &mut bytes)?;
    fd::write(to, &bytes[..n])
}
