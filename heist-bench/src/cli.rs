//! The command line.

use crate::bench::{self, BENCHMARKS, Benchmark, Peer};
use crate::system;
use std::fmt::Write;
use std::path::PathBuf;

/// What the program was asked to do.
#[derive(Debug)]
pub(crate) enum Command {
    /// Explain itself.
    Help,
    /// Be a sampling process. Hidden: `__sample <problem> <peer> <procs> <n>`.
    Sample { problem: String, peer: Peer, procs: usize, n: u64 },
    /// Run an operation and nothing else. Hidden: `__count <op> <n>`.
    Count { op: String, n: u64 },
    /// Be the load of a server. Hidden: `__load <address> <connections> <messages>`.
    Load { address: String, connections: u64, messages: u64 },
    /// Measure.
    Run(Options),
}

/// How to measure.
#[derive(Debug)]
pub(crate) struct Options {
    /// Which benchmarks, in the order of [`BENCHMARKS`].
    pub(crate) benchmarks: Vec<&'static Benchmark>,
    /// With how many workers.
    pub(crate) procs: Vec<usize>,
    /// How many rounds, if not as many as each benchmark likes.
    pub(crate) rounds: Option<usize>,
    /// Smaller problems and fewer rounds.
    pub(crate) quick: bool,
    /// Where Go is.
    pub(crate) go: Go,
    /// Where to write everything that was measured.
    pub(crate) json: Option<PathBuf>,
}

/// Where Go is.
#[derive(Debug)]
pub(crate) enum Go {
    /// On `PATH`, if anywhere.
    Auto,
    /// Not wanted.
    Off,
    /// Here.
    At(PathBuf),
}

/// Most rounds that make sense: a day of them.
const MAX_ROUNDS: usize = 10_000;

/// Reads the arguments, the program's name not among them.
pub(crate) fn parse(arguments: &[String]) -> Result<Command, String> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["__sample", problem, peer, procs, n] => {
            return Ok(Command::Sample {
                problem: problem.to_owned(),
                peer: Peer::named(peer).ok_or_else(|| format!("no peer is called '{peer}'"))?,
                procs: number(procs, "procs")?,
                n: number(n, "n")?,
            });
        }
        ["__load", address, connections, messages] => {
            let (address, connections) = (address.to_owned(), number(connections, "connections")?);
            let messages = messages.parse().map_err(|_| "messages: a number".to_owned())?;
            return Ok(Command::Load { address, connections, messages });
        }
        ["__count", op, n] => {
            return Ok(Command::Count { op: op.to_owned(), n: number(n, "n")? });
        }
        _ => {}
    }
    let mut names: Vec<&str> = Vec::new();
    let mut options = Options {
        benchmarks: Vec::new(),
        procs: (1..=system::cpus().min(2)).collect(),
        rounds: None,
        quick: false,
        go: Go::Auto,
        json: None,
    };
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        // Both `--option value` and `--option=value`.
        let (option, inline) = match word.split_once('=') {
            Some((option, value)) if option.starts_with("--") => (option, Some(value)),
            _ => (word, None),
        };
        let mut value = |what: &str| {
            let value = inline.or_else(|| words.next()).filter(|value| !value.is_empty());
            value.ok_or_else(|| format!("{option} needs a value: {what}"))
        };
        match option {
            "-h" | "--help" => return Ok(Command::Help),
            "--quick" if inline.is_none() => options.quick = true,
            "--procs" => options.procs = procs(value("numbers of workers, such as 1,2")?)?,
            "--rounds" => options.rounds = Some(rounds(value("a number of rounds")?)?),
            "--json" => options.json = Some(value("the name of a file")?.into()),
            "--go" => {
                options.go = match value("auto, off, or the path of a go command")? {
                    "auto" => Go::Auto,
                    "off" => Go::Off,
                    path => Go::At(path.into()),
                }
            }
            _ if option.starts_with('-') => {
                return Err(format!("there is no option '{word}'; --help lists them"));
            }
            name => names.push(name),
        }
    }
    if let Some(unknown) = names.iter().find(|name| bench::named(name).is_none()) {
        let all: Vec<&str> = BENCHMARKS.iter().map(|b| b.name).collect();
        return Err(format!(
            "there is no benchmark '{unknown}'; there are: {} (and none means all)",
            all.join(", ")
        ));
    }
    let wanted = |b: &&Benchmark| names.is_empty() || names.contains(&b.name);
    options.benchmarks = BENCHMARKS.iter().filter(wanted).collect();
    Ok(Command::Run(options))
}

fn number<T: std::str::FromStr>(text: &str, what: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("'{text}' is no {what}"))
}

fn procs(list: &str) -> Result<Vec<usize>, String> {
    let cpus = system::cpus();
    let bad = |part: &str| {
        format!(
            "'{part}' in --procs {list} is no number of workers; possible are numbers from 1 to \
             {cpus}, the CPUs that this process may use, separated by commas"
        )
    };
    let mut procs = Vec::new();
    for part in list.split(',') {
        match part.trim().parse() {
            Ok(n) if (1..=cpus).contains(&n) => procs.push(n),
            _ => return Err(bad(part)),
        }
    }
    procs.sort_unstable();
    procs.dedup();
    Ok(procs)
}

fn rounds(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if (1..=MAX_ROUNDS).contains(&n) => Ok(n),
        _ => Err(format!("'{text}' is no number of rounds; possible are 1 to {MAX_ROUNDS}")),
    }
}

/// What `--help` prints.
pub(crate) fn help() -> String {
    let mut text = String::from(
        "heist measured against tokio, may, rayon, OS threads and Go, in one
interleaved run.

Usage: heist-bench [BENCH..] [OPTIONS]
       cargo run --release -p heist-bench -- [BENCH..] [OPTIONS]

Benchmarks (all of them if none is named):
",
    );
    for benchmark in BENCHMARKS {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {:<19} {}", benchmark.name, benchmark.about);
    }
    text.push_str(
        "
Options:
  --procs LIST     numbers of workers, separated by commas   [default: 1,2]
  --rounds N       rounds of each benchmark; those that measure memory take
                   three at most                      [default: as they like]
  --quick          smaller problems and fewer rounds: less than 80 seconds
                   instead of less than eight minutes, and less trustworthy
  --go WHICH       auto: the go command on PATH; off: without Go; or the path
                   of a go command                           [default: auto]
  --json FILE      also write every sample and every verdict to FILE
  -h, --help       this text

Every sample comes from a process of its own for each benchmark, peer and number
of workers; the processes take turns, a round each, so that whatever disturbs the
machine disturbs all alike. Compare ratios of medians, not nanoseconds.

Exit code: 0 when everything was measured, also when heist lost; 1 when heist
failed or the file could not be written; 2 when the command line makes no sense.
",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> Result<Command, String> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    fn options(line: &str) -> Options {
        match parse_line(line) {
            Ok(Command::Run(options)) => options,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn nothing_means_everything() {
        let options = options("");
        assert_eq!(options.benchmarks.len(), BENCHMARKS.len());
        assert_eq!(options.procs[0], 1);
        assert!(matches!(options.go, Go::Auto));
    }

    #[test]
    fn options_and_names_mix() {
        let options = options("yield --procs=1 --quick burst --rounds 3 --go off --json out");
        let names: Vec<_> = options.benchmarks.iter().map(|b| b.name).collect();
        assert_eq!(names, ["yield", "burst"]);
        assert_eq!((options.procs, options.rounds, options.quick), (vec![1], Some(3), true));
        assert!(matches!(options.go, Go::Off));
        assert_eq!(options.json, Some("out".into()));
    }

    #[test]
    fn errors_say_what_is_possible() {
        let error = |line| parse_line(line).unwrap_err();
        assert!(error("yeild").contains("spawn_join, spawn_join_handles, yield"));
        assert!(error("--procs 0").contains("from 1 to"));
        assert!(error("--procs 1,,2").contains("from 1 to"));
        assert!(error("--procs 99999").contains("from 1 to"));
        assert!(error("--procs").contains("needs a value"));
        assert!(error("--rounds 0").contains("1 to 10000"));
        assert!(error("--go=").contains("needs a value"));
        assert!(error("--fast").contains("--help"));
        assert!(error("--quick=yes").contains("--help"));
    }

    #[test]
    fn help_names_every_benchmark() {
        assert!(BENCHMARKS.iter().all(|b| help().contains(b.name)));
    }
}
