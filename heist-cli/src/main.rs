//! The `heist` command.
//!
//! Without arguments it gives the tour: what heist claims, measured on this
//! machine, with the line of source that does it.

mod sim;
mod tour;

use std::process::ExitCode;

const HELP: &str = "\
heist: goroutines for Rust

usage: heist [COMMAND]

commands:
  tour       what heist can do, measured here in less than a minute (default)
  sim        the scheduler on a simulated machine of 1 to 1,024 cores
             (`heist sim help` has the details)
  help       this text
  version    the version
";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let command = args.next();
    if command.as_deref() == Some("sim") {
        return sim::run(args);
    }
    if let (Some(command), Some(extra)) = (&command, args.next()) {
        eprintln!("heist: '{command}' takes no argument '{extra}'\n\n{HELP}");
        return ExitCode::from(2);
    }
    match command.as_deref() {
        None | Some("tour") => tour::run(),
        Some("help" | "--help" | "-h") => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        Some("version" | "--version" | "-V") => {
            println!("heist {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Some(unknown) => {
            eprintln!("heist: there is no command '{unknown}'\n\n{HELP}");
            ExitCode::from(2)
        }
    }
}
