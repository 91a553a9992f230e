//! What goes on, on standard error: one line that is rewritten on a terminal,
//! and a line for each group of samples otherwise.

use std::io::{IsTerminal, Write, stderr};

pub(crate) struct Progress {
    terminal: bool,
    /// What each line begins with: which benchmark of how many.
    heading: String,
}

impl Progress {
    pub(crate) fn new() -> Progress {
        Progress { terminal: stderr().is_terminal(), heading: String::new() }
    }

    /// A benchmark begins.
    pub(crate) fn heading(&mut self, heading: String) {
        self.heading = heading;
    }

    /// A group of samples begins.
    pub(crate) fn group(&self, group: &str) {
        if !self.terminal {
            eprintln!("{}: {group}", self.heading);
        }
    }

    /// A sample begins; shown on a terminal only.
    pub(crate) fn step(&self, step: &str) {
        if self.terminal {
            self.rewrite(&format!("{}: {step}", self.heading));
        }
    }

    /// Nothing goes on any more.
    pub(crate) fn clear(&self) {
        if self.terminal {
            self.rewrite("");
        }
    }

    fn rewrite(&self, line: &str) {
        // Whoever closed standard error does not want to know.
        let _ = write!(stderr(), "\r\x1b[K{line}").and_then(|()| stderr().flush());
    }
}
