//! The tour: each stop a claim, a measurement and the source line behind it.
//!
//! A claim is something that can be counted, so that a slow or busy machine
//! does not make it false; times are shown beside it.

mod channels;
mod connections;
mod forks;
mod hogs;
mod million;
mod sleepers;
mod steal;
mod yields;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// What a stop found.
pub(crate) struct Finding {
    /// What is claimed.
    pub(crate) claim: String,
    /// Whether it holds here.
    pub(crate) holds: bool,
    /// What was measured, a line each.
    pub(crate) measured: Vec<String>,
    /// Where in the source it is done.
    pub(crate) source: Source,
}

/// A line of heist's source, found by the text that it begins with.
pub(crate) struct Source {
    pub(crate) file: &'static str,
    pub(crate) text: &'static str,
    pub(crate) line: &'static str,
}

impl Source {
    fn place(&self) -> String {
        match self.text.lines().position(|line| line.trim_start().starts_with(self.line)) {
            Some(index) => format!("{}:{}", self.file, index + 1),
            None => self.file.to_owned(),
        }
    }
}

/// A stop of the tour.
struct Stop {
    title: &'static str,
    visit: fn() -> Finding,
}

const STOPS: [Stop; 8] = [
    Stop { title: "A million goroutines", visit: million::visit },
    Stop { title: "Everybody gets a turn", visit: yields::visit },
    Stop { title: "One loaded, the others steal", visit: steal::visit },
    Stop { title: "A fork at every call", visit: forks::visit },
    Stop { title: "Channels and select", visit: channels::visit },
    Stop { title: "Sleepers wake on time", visit: sleepers::visit },
    Stop { title: "Nobody starves", visit: hogs::visit },
    Stop { title: "A goroutine for each connection", visit: connections::visit },
];

/// Gives the tour. Fails if a claim does.
pub(crate) fn run() -> ExitCode {
    let started = Instant::now();
    println!("heist: goroutines for Rust");
    println!("plain blocking code, a million tasks, nobody starves");
    if cfg!(debug_assertions) {
        println!("\n(a debug build: `cargo run --release` shows what it can do)");
    }
    let mut failed = 0;
    for (i, stop) in STOPS.iter().enumerate() {
        println!("\n{}. {}", i + 1, stop.title);
        // Something is said while it works, since a stop takes seconds.
        let talk = std::io::stdout().is_terminal();
        if talk {
            print!("   measuring ...");
            let _ = std::io::stdout().flush();
        }
        let finding = (stop.visit)();
        if talk {
            print!("\r                \r");
        }
        println!("   claim   {}", finding.claim);
        for line in &finding.measured {
            println!("   {line}");
        }
        println!("   source  {}", finding.source.place());
        if !finding.holds {
            failed += 1;
            println!("   THE CLAIM DOES NOT HOLD HERE");
        }
    }
    println!();
    if failed > 0 {
        println!("{failed} of {} claims do not hold on this machine.", STOPS.len());
        return ExitCode::FAILURE;
    }
    println!(
        "All {} claims hold; the tour took {:.1} s. More: README.md, ARCHITECTURE.md.",
        STOPS.len(),
        started.elapsed().as_secs_f64()
    );
    ExitCode::SUCCESS
}

/// A runtime with so many Ps, for a stop.
pub(crate) fn runtime(procs: usize) -> heist::Runtime {
    match heist::Builder::new().max_procs(procs).build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("heist: {error}");
            std::process::exit(1);
        }
    }
}

/// A number with commas.
pub(crate) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Nanoseconds for each of `n`.
pub(crate) fn each(time: Duration, n: u64) -> String {
    let each = (time.as_nanos() as f64 / n as f64).round();
    format!("{} ns", grouped(each as u64))
}
