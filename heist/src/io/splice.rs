//! What [`copy`](super::copy) can leave to the kernel: which types those are.

use super::{PipeReader, PipeWriter};
use crate::fs::File;
use crate::net::{TcpStream, UnixStream};
use crate::process::{ChildStderr, ChildStdin, ChildStdout};
use crate::sched::netpoll::Side;
use std::any::TypeId;
use std::io::{self, Write};
use std::marker::PhantomData;
use std::mem;
use std::os::fd::BorrowedFd;
use std::panic::Location;
use std::ptr;

/// A descriptor that is waited for in the poller.
pub(crate) trait Stream {
    /// Makes a call, and waits when that would block.
    fn call(
        &self,
        side: Side,
        site: &'static Location<'static>,
        call: &mut dyn FnMut(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> io::Result<usize>;

    /// Puts it into non-blocking mode, or back, for calls that cannot be told not to
    /// wait. They come in pairs, and several may be open.
    fn lend(&self, on: bool) -> io::Result<()>;

    /// Writes all of it.
    fn write_all(&self, bytes: &[u8]) -> io::Result<()>;
}

/// A stream in non-blocking mode.
pub(super) struct Lent<'a>(&'a dyn Stream);

impl<'a> Lent<'a> {
    pub(super) fn new(stream: &'a dyn Stream) -> io::Result<Lent<'a>> {
        stream.lend(true)?;
        Ok(Lent(stream))
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        // What could be set can be unset.
        let _ = self.0.lend(false);
    }
}

/// One end of a copy.
#[derive(Clone, Copy)]
pub(super) enum End<'a> {
    File(&'a File),
    Stream(&'a dyn Stream),
}

impl<'a> End<'a> {
    /// What a reader or writer is, if it is one of ours or a reference to one.
    pub(super) fn of<T: ?Sized>(value: &'a T) -> Option<End<'a>> {
        if let Some(file) = view::<T, File>(value) {
            return Some(End::File(file));
        }
        macro_rules! first {
            ($($stream:ty),*) => {
                $(if let Some(stream) = view::<T, $stream>(value) {
                    return Some(End::Stream(stream));
                })*
            };
        }
        first!(TcpStream, UnixStream, PipeReader, PipeWriter);
        let pipe = view::<T, ChildStdout>(value).map(ChildStdout::pipe);
        let pipe = pipe.or_else(|| view::<T, ChildStderr>(value).map(ChildStderr::pipe));
        if let Some(pipe) = pipe {
            return Some(End::Stream(pipe));
        }
        view::<T, ChildStdin>(value).map(|stdin| End::Stream(stdin.pipe()))
    }

    pub(super) fn write_all(self, bytes: &[u8]) -> io::Result<()> {
        match self {
            End::File(mut file) => file.write_all(bytes),
            End::Stream(stream) => stream.write_all(bytes),
        }
    }
}

/// A value as the `U` that it is, or that it is a reference to.
fn view<T: ?Sized, U: 'static>(value: &T) -> Option<&U> {
    let id = id_of::<T>();
    if id == TypeId::of::<U>() {
        // SAFETY: it is of that type, which has no lifetimes in it.
        return Some(unsafe { &*ptr::from_ref(value).cast::<U>() });
    }
    if id == TypeId::of::<&'static U>() || id == TypeId::of::<&'static mut U>() {
        // SAFETY: it is a reference to that type, which lives as long as `value` can be
        // borrowed; a mutable one cannot be used while `value` is borrowed.
        return Some(unsafe { *ptr::from_ref(value).cast::<&U>() });
    }
    None
}

/// The identity of a type, whatever the lifetimes in it.
fn id_of<T: ?Sized>() -> TypeId {
    trait Identity {
        fn id(&self) -> TypeId
        where
            Self: 'static;
    }

    impl<T: ?Sized> Identity for PhantomData<T> {
        fn id(&self) -> TypeId
        where
            Self: 'static,
        {
            TypeId::of::<T>()
        }
    }

    let of: &dyn Identity = &PhantomData::<T>;
    // SAFETY: lifetimes are gone at run time, and nothing of that lifetime is touched:
    // the value has no bytes.
    let of = unsafe { mem::transmute::<&dyn Identity, &(dyn Identity + 'static)>(of) };
    of.id()
}
