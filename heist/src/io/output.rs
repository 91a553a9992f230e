//! Standard output and standard error.
//!
//! Underneath are std's own, with their buffer and their lock for the length of a
//! call: so that lines of `println!` and of heist come in the order in which they
//! were written. On top is a lock of heist's, which a goroutine may hold while it
//! waits; std's belongs to the thread, which a goroutine leaves when it waits.

use crate::sync::reentrant::{Reentrant, ReentrantGuard};
use crate::syscall;
use std::fmt;
use std::io::{self, IoSlice, Write};
use std::marker::PhantomData;
use std::panic::Location;

/// One of the two streams.
macro_rules! stream {
    ($stream:ident, $lock:ident, $function:ident, $static:ident, $text:literal) => {
        static $static: Reentrant = Reentrant::new();

        #[doc = $text]
        ///
        /// A write that the other side is slow to take keeps its thread, but no P.
        ///
        /// ```
        /// use std::io::Write;
        ///
        #[doc = concat!("let mut stream = heist::io::", stringify!($function), "().lock();")]
        /// heist::thread::yield_now(); // others cannot write in between
        /// writeln!(stream, "one line").unwrap();
        /// ```
        #[must_use]
        pub fn $function() -> $stream {
            $stream { private: () }
        }

        #[doc = concat!("The stream that [`", stringify!($function), "`] gives.")]
        pub struct $stream {
            private: (),
        }

        #[doc = concat!("Keeps other goroutines and threads that write by [`", stringify!($stream), "`] waiting.")]
        ///
        /// `print!` and its kin take std's lock for each call, and not this one.
        pub struct $lock<'a> {
            _guard: ReentrantGuard,
            _stream: PhantomData<&'a ()>,
        }

        impl $stream {
            /// Waits until nobody else writes, and keeps it so until the lock is
            /// dropped. Whoever has it may lock again.
            #[must_use]
            #[track_caller]
            pub fn lock(&self) -> $lock<'static> {
                $lock { _guard: $static.lock(Location::caller()), _stream: PhantomData }
            }
        }

        impl Write for $lock<'_> {
            fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
                syscall(|| std::io::$function().write(buf))
            }

            fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
                syscall(|| std::io::$function().write_vectored(bufs))
            }

            fn write_all(&mut self, buf: &[u8]) -> io::Result<()> {
                syscall(|| std::io::$function().write_all(buf))
            }

            fn flush(&mut self) -> io::Result<()> {
                syscall(|| std::io::$function().flush())
            }
        }

        impl Write for &$stream {
            fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
                self.lock().write(buf)
            }

            fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
                self.lock().write_vectored(bufs)
            }

            fn write_all(&mut self, buf: &[u8]) -> io::Result<()> {
                self.lock().write_all(buf)
            }

            fn write_fmt(&mut self, args: fmt::Arguments<'_>) -> io::Result<()> {
                self.lock().write_fmt(args)
            }

            fn flush(&mut self) -> io::Result<()> {
                self.lock().flush()
            }
        }

        impl Write for $stream {
            fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
                (&*self).write(buf)
            }

            fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
                (&*self).write_vectored(bufs)
            }

            fn write_all(&mut self, buf: &[u8]) -> io::Result<()> {
                (&*self).write_all(buf)
            }

            fn write_fmt(&mut self, args: fmt::Arguments<'_>) -> io::Result<()> {
                (&*self).write_fmt(args)
            }

            fn flush(&mut self) -> io::Result<()> {
                (&*self).flush()
            }
        }

        impl fmt::Debug for $stream {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let Self { private: () } = self;
                f.debug_struct(stringify!($stream)).finish_non_exhaustive()
            }
        }

        impl fmt::Debug for $lock<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($lock)).finish_non_exhaustive()
            }
        }
    };
}

stream!(Stdout, StdoutLock, stdout, STDOUT, "Standard output: std's, for goroutines.");
stream!(Stderr, StderrLock, stderr, STDERR, "Standard error: std's, for goroutines.");
