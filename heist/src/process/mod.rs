//! Child processes: `std::process`, for goroutines.
//!
//! A program that says `use heist::process` instead of `use std::process` compiles
//! and behaves the same. Waiting for a child, and reading from and writing to it,
//! parks the goroutine: a thousand children need no thousand threads.
//!
//! ```
//! use heist::process::Command;
//!
//! # fn main() -> std::io::Result<()> {
//! heist::run(|| {
//!     let output = Command::new("echo").arg("hello").output()?;
//!     assert!(output.status.success());
//!     assert_eq!(output.stdout, b"hello\n");
//!     Ok(())
//! })
//! # }
//! ```
//!
//! What waits for nothing is std's itself: [`Stdio`], [`Output`], [`ExitStatus`],
//! [`exit`], [`abort`] and so on. `std::os::unix::process::CommandExt` can be
//! implemented by std only, so that its methods are methods of [`Command`] here; all but
//! `before_exec`, which std has deprecated: [`pre_exec`](Command::pre_exec) takes the
//! same function.
//!
//! [`exit`] and [`abort`] end the process with all that its goroutines do.
//!
//! | file | what |
//! |---|---|
//! | `command.rs` | [`Command`] |
//! | `child.rs` | [`Child`] |
//! | `stream.rs` | [`ChildStdin`], [`ChildStdout`], [`ChildStderr`] |

mod child;
#[allow(unsafe_code)] // named file: what callers run between fork and exec
mod command;
mod stream;

pub use child::Child;
pub use command::Command;
pub use std::process::{
    CommandArgs, CommandEnvs, ExitCode, ExitStatus, Output, Stdio, Termination, abort, exit, id,
};
pub use stream::{ChildStderr, ChildStdin, ChildStdout};
