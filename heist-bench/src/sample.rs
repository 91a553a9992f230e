//! A sampling process, seen from inside.
//!
//! It starts the runtime of one peer with one number of workers, warms up, says
//! `ready`, and then runs a round for every line that it reads. A round answers
//! with a line of whole numbers: nanoseconds, or bytes. The Go program speaks
//! the same protocol.

use crate::bench::{self, Peer};
use std::io::{BufRead, Write, stdin, stdout};
use std::process::ExitCode;

/// What a process says when it has warmed up.
pub(crate) const READY: &str = "ready";

/// Serves rounds until standard input ends.
pub(crate) fn serve(problem: &str, peer: Peer, procs: usize, n: u64) -> ExitCode {
    let Some(mut round) = bench::open(problem, peer, procs, n) else {
        eprintln!("{peer} has no problem '{problem}'");
        return ExitCode::FAILURE;
    };
    if bench::warms_up(problem) {
        round();
    }
    say(READY);
    for _request in stdin().lock().lines() {
        let samples: Vec<String> = round().iter().map(u64::to_string).collect();
        say(&samples.join(" "));
    }
    // At once: to unwind a million parked tasks first would take a while.
    std::process::exit(0)
}

fn say(line: &str) {
    let mut out = stdout().lock();
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        // The parent is gone, and with it the reason to go on.
        std::process::exit(0);
    }
}
