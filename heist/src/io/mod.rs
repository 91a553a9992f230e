//! Input and output: `std::io`, with pipes, standard streams and [`copy`] for
//! goroutines.
//!
//! A program that says `use heist::io` instead of `use std::io` compiles and behaves
//! the same: traits, errors, buffers and adapters are std's own, so that everything
//! that is made of `Read` and `Write` fits.
//!
//! ```
//! use heist::io::{self, Read, Write};
//!
//! # fn main() -> io::Result<()> {
//! heist::run(|| {
//!     let (mut reader, mut writer) = io::pipe()?;
//!     heist::go(move || writer.write_all(b"through the pipe"));
//!     let mut text = String::new();
//!     reader.read_to_string(&mut text)?; // parks
//!     assert_eq!(text, "through the pipe");
//!     Ok(())
//! })
//! # }
//! ```
//!
//! | here | what differs from std |
//! |---|---|
//! | [`pipe`], [`PipeReader`], [`PipeWriter`] | a goroutine that waits parks, and holds no thread |
//! | [`stdin`], [`Stdin`], [`StdinLock`] | likewise, if it is a terminal, a pipe or a socket |
//! | [`stdout`], [`stderr`] and their kin | declared calls; locks that a goroutine may hold while it waits |
//! | [`copy`] | inside the kernel, where that is faster, between files, pipes and sockets of heist |
//!
//! | file | what |
//! |---|---|
//! | `pipe.rs` | pipes |
//! | `stdin.rs`, `output.rs` | the standard streams |
//! | `copy.rs`, `splice.rs` | [`copy`] |
//! | `pollable.rs` | a descriptor of the poller that is neither a socket nor a file |
//! | `whole.rs` | writes that end when everything is written |
//! | `fd.rs` | system calls and conversions |

mod copy;
#[allow(unsafe_code)] // named file: system calls, and descriptors that callers vouch for
pub(crate) mod fd;
mod output;
mod pipe;
pub(crate) mod pollable;
#[allow(unsafe_code)] // named file: types that are the same but for lifetimes
pub(crate) mod splice;
mod stdin;
pub(crate) mod whole;

pub use copy::copy;
pub use output::{Stderr, StderrLock, Stdout, StdoutLock, stderr, stdout};
pub use pipe::{PipeReader, PipeWriter, pipe};
pub use std::io::*;
pub use stdin::{Stdin, StdinLock, stdin};
