//! What only some systems have: `std::os::unix`, for the types of heist.

/// `std::os::unix`, as far as it is about files, sockets and processes.
pub mod unix {
    /// `std::os::unix::fs`: std's traits, which [`heist::fs`](crate::fs)
    /// implements, and functions that let other goroutines run.
    ///
    /// ```
    /// use heist::fs::{self, File};
    /// use heist::os::unix::fs::{FileExt, symlink};
    ///
    /// # fn main() -> std::io::Result<()> {
    /// heist::run(|| {
    ///     let link = std::env::temp_dir().join(format!("heist-link-{}", std::process::id()));
    ///     symlink("/proc/self/status", &link)?;
    ///     let mut name = [0; 5];
    ///     File::open(&link)?.read_exact_at(&mut name, 0)?;
    ///     assert_eq!(&name, b"Name:");
    ///     fs::remove_file(&link)
    /// })
    /// # }
    /// ```
    pub mod fs {
        use crate::syscall;
        use std::io;
        use std::os::fd::AsFd;
        use std::path::Path;

        pub use std::os::unix::fs::{
            DirBuilderExt, DirEntryExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt,
            PermissionsExt,
        };

        /// Makes a symbolic link, as [`std::os::unix::fs::symlink`] does.
        pub fn symlink<P: AsRef<Path>, Q: AsRef<Path>>(original: P, link: Q) -> io::Result<()> {
            let (original, link) = (original.as_ref(), link.as_ref());
            syscall(|| std::os::unix::fs::symlink(original, link))
        }

        /// Changes the owner of a file, as [`std::os::unix::fs::chown`] does.
        pub fn chown<P: AsRef<Path>>(dir: P, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
            let dir = dir.as_ref();
            syscall(|| std::os::unix::fs::chown(dir, uid, gid))
        }

        /// Changes the owner of an open file, as [`std::os::unix::fs::fchown`] does.
        pub fn fchown<F: AsFd>(fd: F, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
            let fd = fd.as_fd();
            syscall(|| std::os::unix::fs::fchown(fd, uid, gid))
        }

        /// Changes the owner of a link itself, as [`std::os::unix::fs::lchown`] does.
        pub fn lchown<P: AsRef<Path>>(
            dir: P,
            uid: Option<u32>,
            gid: Option<u32>,
        ) -> io::Result<()> {
            let dir = dir.as_ref();
            syscall(|| std::os::unix::fs::lchown(dir, uid, gid))
        }

        /// Changes the root of the process, as [`std::os::unix::fs::chroot`] does.
        pub fn chroot<P: AsRef<Path>>(dir: P) -> io::Result<()> {
            let dir = dir.as_ref();
            syscall(|| std::os::unix::fs::chroot(dir))
        }
    }

    /// `std::os::unix::net`, for goroutines: [`heist::net::unix`](crate::net::unix), under the
    /// path that programs know.
    ///
    /// ```
    /// use heist::os::unix::net::UnixStream;
    /// use std::io::{Read, Write};
    ///
    /// # fn main() -> std::io::Result<()> {
    /// heist::run(|| {
    ///     let (mut here, mut there) = UnixStream::pair()?;
    ///     heist::go(move || here.write_all(b"hello"));
    ///     let mut heard = String::new();
    ///     there.read_to_string(&mut heard)?;
    ///     assert_eq!(heard, "hello");
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub mod net {
        pub use crate::net::unix::{Incoming, SocketAddr, UnixDatagram, UnixListener, UnixStream};
    }

    /// `std::os::unix::process`. The methods of `CommandExt` are methods of
    /// [`Command`](crate::process::Command) itself.
    pub mod process {
        pub use std::os::unix::process::{CommandExt, ExitStatusExt, parent_id};
    }
}
