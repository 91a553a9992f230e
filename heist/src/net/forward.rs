//! What std's sockets do well already is handed on to them.

/// Methods that std's socket has under the same name, and that do not wait.
macro_rules! forward {
    ($($(#[$doc:meta])* fn $name:ident(&self $(, $arg:ident: $type:ty)*) -> $result:ty;)*) => {
        $(
            $(#[$doc])*
            pub fn $name(&self $(, $arg: $type)*) -> $result {
                self.socket.inner().$name($($arg),*)
            }
        )*
    };
}

/// Timeouts and deadlines, and whether to wait at all.
macro_rules! waiting {
    () => {
        /// The longest that a read may take; see
        /// [`set_read_timeout`](Self::set_read_timeout).
        ///
        /// # Errors
        ///
        /// If the kernel does not tell.
        pub fn read_timeout(&self) -> std::io::Result<Option<std::time::Duration>> {
            self.socket.inner().read_timeout()
        }

        /// The longest that a write may take; see
        /// [`set_write_timeout`](Self::set_write_timeout).
        ///
        /// # Errors
        ///
        /// If the kernel does not tell.
        pub fn write_timeout(&self) -> std::io::Result<Option<std::time::Duration>> {
            self.socket.inner().write_timeout()
        }

        /// Lets each read take at most so long; `None` for as long as it takes. It
        /// then fails with [`WouldBlock`](std::io::ErrorKind::WouldBlock), as std's
        /// does here. All handles of the socket have the same.
        ///
        /// # Errors
        ///
        /// `InvalidInput` if the time is zero.
        pub fn set_read_timeout(
            &self,
            timeout: Option<std::time::Duration>,
        ) -> std::io::Result<()> {
            self.socket.inner().set_read_timeout(timeout)?;
            self.socket.note_timeout($crate::sched::netpoll::Side::Read, timeout);
            Ok(())
        }

        /// Lets each write take at most so long; as
        /// [`set_read_timeout`](Self::set_read_timeout). A write to a stream of which a
        /// part is written by then returns how much that is.
        ///
        /// # Errors
        ///
        /// `InvalidInput` if the time is zero.
        pub fn set_write_timeout(
            &self,
            timeout: Option<std::time::Duration>,
        ) -> std::io::Result<()> {
            self.socket.inner().set_write_timeout(timeout)?;
            self.socket.note_timeout($crate::sched::netpoll::Side::Write, timeout);
            Ok(())
        }

        /// Sets the moment at which calls begin to fail with
        /// [`TimedOut`](std::io::ErrorKind::TimedOut), those that wait now included,
        /// until another is set; `None` for never. Go's `SetDeadline`.
        ///
        /// Unlike a timeout, which begins anew with each call, this is for a whole
        /// exchange. It belongs to this handle, not to its clones.
        pub fn set_deadline(&self, deadline: Option<std::time::Instant>) {
            self.set_read_deadline(deadline);
            self.set_write_deadline(deadline);
        }

        /// As [`set_deadline`](Self::set_deadline), for reading.
        pub fn set_read_deadline(&self, deadline: Option<std::time::Instant>) {
            self.socket.set_deadline($crate::sched::netpoll::Side::Read, deadline);
        }

        /// As [`set_deadline`](Self::set_deadline), for writing.
        pub fn set_write_deadline(&self, deadline: Option<std::time::Instant>) {
            self.socket.set_deadline($crate::sched::netpoll::Side::Write, deadline);
        }

        /// Whether calls fail with [`WouldBlock`](std::io::ErrorKind::WouldBlock)
        /// instead of waiting. All handles of the socket do the same.
        ///
        /// # Errors
        ///
        /// If the kernel refuses.
        pub fn set_nonblocking(&self, nonblocking: bool) -> std::io::Result<()> {
            self.socket.set_nonblocking(nonblocking)
        }
    };
}

/// The end of a connection.
macro_rules! ending {
    () => {
        /// Ends the connection: all calls on this handle fail, those that wait now
        /// included, and the other end is told. For clones of it the connection is shut
        /// down: they read to the end, and cannot write. The descriptor itself is closed
        /// when the handle is dropped, so that nobody uses one that is another's by now.
        pub fn close(&self) {
            self.socket.close_stream();
        }
    };
}

/// Messages from and to the address that a datagram socket is connected to.
macro_rules! messages {
    () => {
        /// Receives a message; from the address that it is connected to, if it is. What
        /// does not fit is lost. After a shutdown of reading and the last message it
        /// returns 0, as with std.
        ///
        /// # Errors
        ///
        /// Those of recv(2).
        #[track_caller]
        pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
            self.recv_with(buf, RecvFlags::DONTWAIT, Location::caller())
        }

        /// As [`recv`](Self::recv), and leaves the message there.
        ///
        /// # Errors
        ///
        /// Those of recv(2).
        #[track_caller]
        pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
            self.recv_with(buf, RecvFlags::DONTWAIT | RecvFlags::PEEK, Location::caller())
        }

        #[inline(always)] // as `park::yield_now`
        fn recv_with(
            &self,
            buf: &mut [u8],
            flags: RecvFlags,
            site: &'static Location<'static>,
        ) -> io::Result<usize> {
            let attempt = |fd: BorrowedFd<'_>| Ok(sys::recv(fd, &mut *buf, flags)?.1);
            self.socket.receive(site, attempt, || Ok(0))
        }

        /// Sends a message to the address that it is connected to.
        ///
        /// # Errors
        ///
        /// Those of send(2).
        #[track_caller]
        pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
            self.socket.run(Side::Write, Location::caller(), |fd| Ok(sys::send(fd, buf, SEND)?))
        }

        /// Ends all calls on this handle, those that wait now included, with an error.
        /// Its clones go on: there is no connection that would end. The descriptor
        /// itself is closed when the handle is dropped, so that nobody uses one that is
        /// another's by now.
        pub fn close(&self) {
            self.socket.close();
        }
    };
}

/// `Read` and `Write` for a stream, as for a reference to it.
macro_rules! by_value {
    ($stream:ident) => {
        impl std::io::Read for $stream {
            #[inline]
            #[track_caller]
            fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
                (&*self).read(buf)
            }

            #[inline]
            #[track_caller]
            fn read_vectored(
                &mut self,
                bufs: &mut [std::io::IoSliceMut<'_>],
            ) -> std::io::Result<usize> {
                (&*self).read_vectored(bufs)
            }
        }

        impl std::io::Write for $stream {
            #[inline]
            #[track_caller]
            fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
                (&*self).write(buf)
            }

            #[inline]
            #[track_caller]
            fn write_vectored(&mut self, bufs: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
                (&*self).write_vectored(bufs)
            }

            #[inline]
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
    };
}

pub(super) use {by_value, ending, forward, messages, waiting};
