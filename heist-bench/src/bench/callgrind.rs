//! Instructions of single operations, counted: a number without noise.

use super::Benchmark;
use super::ops::{self, Op};
use crate::session::Session;
use crate::system::{self, Scratch};
use crate::table::Column::{Left, Right};
use crate::table::{Table, count as thousands};
use std::path::Path;
use std::process::{Command, ExitCode};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "callgrind",
    about: "heist only: instructions per operation, counted by valgrind",
    run,
};

/// The operations of `ops` that are counted, all on one proc.
const COUNTED: [&str; 5] = ["spawn", "spawn_join", "yield_alone", "yield", "park_unpark"];

/// Does an operation so often, for valgrind to count.
pub(crate) fn count(op: &str, n: u64) -> ExitCode {
    match ops::named(op) {
        Some(op) => {
            (op.run)(n);
            ExitCode::SUCCESS
        }
        None => {
            eprintln!("there is no operation '{op}'");
            ExitCode::FAILURE
        }
    }
}

fn run(session: &mut Session) -> Table {
    let title = "callgrind: heist, instructions per operation";
    let columns = [Left("operation"), Right("instructions"), Left("")];
    let mut table = Table::new(title, &columns);
    let Some(valgrind) = system::on_path("valgrind") else {
        table.note("valgrind was not found: install the package 'valgrind' to have this table");
        return table;
    };
    let scratch = match Scratch::new("callgrind") {
        Ok(scratch) => scratch,
        Err(error) => {
            table.note(format!("no directory for valgrind to write to: {error}"));
            return table;
        }
    };
    let (few, many) = (2_000, session.size(22_000, 12_000));
    for op in COUNTED.iter().filter_map(|name| ops::named(name)) {
        session.announce(op.name);
        let count = |n| instructions(&valgrind, session.executable(), &scratch, op, n);
        let each = count(few).and_then(|base| Ok((count(many)? - base) / (many - few) as f64));
        let name = op.name.to_owned();
        match each {
            Ok(each) => table.row([name, format!("{each:.0}"), String::new()]),
            Err(reason) => {
                session.fail(format!("valgrind, __count {} {many}: {reason}", op.name));
                table.row([name, String::new(), reason]);
            }
        }
    }
    table.note(format!(
        "the difference between {} and {} operations, divided",
        thousands(many),
        thousands(few)
    ));
    table
}

/// All instructions of a process that does an operation `n` times.
fn instructions(
    valgrind: &Path,
    executable: &Path,
    scratch: &Scratch,
    op: Op,
    n: u64,
) -> Result<f64, String> {
    let file = scratch.path().join(format!("{}.{n}", op.name));
    let mut command = Command::new(valgrind);
    command.args(["--tool=callgrind", "--quiet"]);
    // valgrind runs one thread at a time: all of them should get their turn.
    command.arg("--fair-sched=yes");
    command.arg(format!("--callgrind-out-file={}", file.display()));
    command.arg(executable).args(["__count", op.name, &n.to_string()]);
    let output = command.output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {}", output.status, text.lines().next().unwrap_or("")));
    }
    let text = std::fs::read_to_string(&file).map_err(|error| error.to_string())?;
    total(&text).ok_or_else(|| "valgrind wrote no total".into())
}

/// The total in a file of callgrind's.
fn total(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("totals:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_found() {
        assert_eq!(total("events: Ir\nfn=(1) main\ntotals: 1234567\n"), Some(1_234_567.0));
        assert_eq!(total("events: Ir\n"), None);
    }

    #[test]
    fn what_is_counted_exists() {
        assert!(COUNTED.iter().all(|name| ops::named(name).is_some()));
    }
}
