//! heist measured against its peers, in one interleaved run.
//!
//! | file | what |
//! |---|---|
//! | `cli.rs` | the command line |
//! | `bench/` | the benchmarks, one file each, with the peers side by side |
//! | `bench/mod.rs` | the list of them, and how runtimes of peers are made |
//! | `go/main.go` | the same problems for Go |
//! | `golang.rs` | finds Go and builds that program |
//! | `load.rs`, `plain.rs` | clients for servers, and a server without a runtime |
//! | `sample.rs` | a sampling process, seen from inside |
//! | `child.rs` | a sampling process, seen from its parent |
//! | `session.rs` | interleaves rounds of many of those, collects what they say |
//! | `table.rs`, `stats.rs`, `json.rs`, `progress.rs` | numbers for people and programs |
//! | `system.rs` | what the kernel knows about memory and the machine |

mod bench;
mod child;
mod cli;
mod golang;
mod json;
mod load;
mod plain;
mod progress;
mod sample;
mod session;
mod stats;
mod system;
mod table;

use cli::{Command, Options};
use session::Session;
use std::fs::File;
use std::io::Write;
use std::process::ExitCode;

/// The command line makes no sense.
const USAGE: u8 = 2;
/// heist failed, or the result could not be written.
const FAILURE: u8 = 1;

fn main() -> ExitCode {
    let arguments: Vec<String> =
        std::env::args_os().skip(1).map(|a| a.to_string_lossy().into_owned()).collect();
    let command = match cli::parse(&arguments) {
        Ok(command) => command,
        Err(error) => return fail(USAGE, &error),
    };
    match command {
        Command::Help => {
            print!("{}", cli::help());
            ExitCode::SUCCESS
        }
        Command::Sample { problem, peer, procs, n } => sample::serve(&problem, peer, procs, n),
        Command::Load { address, connections, messages } => {
            load::run(&address, connections, messages)
        }
        Command::Count { op, n } => bench::callgrind::count(&op, n),
        Command::Run(options) => run(options),
    }
}

fn run(options: Options) -> ExitCode {
    let go = match golang::Program::find(&options.go) {
        Ok(go) => go,
        Err(error) => return fail(USAGE, &error),
    };
    // Now, and not after minutes of work.
    let json = match options.json.as_ref().map(File::create).transpose() {
        Ok(json) => json,
        Err(error) => return fail(USAGE, &format!("--json: cannot write that file: {error}")),
    };
    let mut session = Session::new(options, go);
    println!("{}", session.headline());
    for (i, benchmark) in session.benchmarks().into_iter().enumerate() {
        session.begin(i, benchmark.name);
        let table = (benchmark.run)(&mut session);
        session.end();
        print!("\n{table}");
    }
    println!("\n{}", session.summary());
    if let Some(mut json) = json
        && let Err(error) = json.write_all(session.to_json().as_bytes())
    {
        return fail(FAILURE, &format!("cannot write the results: {error}"));
    }
    if session.heist_failed() { ExitCode::from(FAILURE) } else { ExitCode::SUCCESS }
}

fn fail(code: u8, error: &str) -> ExitCode {
    eprintln!("heist-bench: {error}");
    ExitCode::from(code)
}
