//! A sampling process, seen from its parent.

use crate::sample::READY;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long an answer may take. A round takes seconds; what takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a process may take to end: the kernel frees gigabytes first.
const LAST_WORDS: Duration = Duration::from_secs(20);

/// How much of standard error is kept for a report.
const COMPLAINTS: u64 = 16 << 10;

/// A process that waits for the next request.
pub(crate) struct Sampler {
    process: Child,
    requests: Option<ChildStdin>,
    answers: Receiver<String>,
    complaints: Option<JoinHandle<String>>,
}

impl Sampler {
    /// Starts a process and waits until it has warmed up.
    pub(crate) fn start(mut command: Command) -> Result<Sampler, String> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().map_err(|error| format!("cannot start: {error}"))?;
        let requests = process.stdin.take();
        let (Some(out), Some(err)) = (process.stdout.take(), process.stderr.take()) else {
            return Err("it has no pipes".into());
        };
        let (sender, answers) = channel();
        thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let complaints = Some(thread::spawn(move || complaints_of(err)));
        let mut sampler = Sampler { process, requests, answers, complaints };
        match sampler.answer()?.as_str() {
            READY => Ok(sampler),
            other => Err(format!("it said '{other}' and not that it is ready")),
        }
    }

    /// Has a round run.
    pub(crate) fn round(&mut self) -> Result<Vec<u64>, String> {
        if let Some(requests) = &mut self.requests {
            // If it has ended, the missing answer will tell.
            let _ = requests.write_all(b"round\n").and_then(|()| requests.flush());
        }
        let answer = self.answer()?;
        let samples: Result<Vec<u64>, _> = answer.split_whitespace().map(str::parse).collect();
        match samples {
            Ok(samples) if !samples.is_empty() => Ok(samples),
            _ => Err(format!("it said '{answer}' where numbers were due")),
        }
    }

    fn answer(&mut self) -> Result<String, String> {
        match self.answers.recv_timeout(PATIENCE) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => {
                Err(format!("HUNG: no answer in {} s", PATIENCE.as_secs()))
            }
            Err(RecvTimeoutError::Disconnected) => Err(self.post_mortem()),
        }
    }

    /// Why it ended.
    fn post_mortem(&mut self) -> String {
        let status = self.reap().map_or_else(|| "it hangs".into(), |status| status.to_string());
        let text = self.complaints.take().and_then(|t| t.join().ok()).unwrap_or_default();
        match complaint(&text) {
            Some(line) => format!("{status}: {line}"),
            None => status,
        }
    }

    /// Waits for its end, for a while.
    fn reap(&mut self) -> Option<std::process::ExitStatus> {
        let begin = Instant::now();
        while begin.elapsed() < LAST_WORDS {
            match self.process.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) => thread::sleep(Duration::from_millis(2)),
                Err(_) => return None,
            }
        }
        None
    }
}

impl Drop for Sampler {
    /// Ends the process and waits for that, so that what follows is undisturbed.
    fn drop(&mut self) {
        // It may hang in the middle of a round, so it is not asked but killed.
        // If it has ended already there is nothing left to do.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn complaints_of(pipe: impl Read) -> String {
    let mut bytes = Vec::new();
    let mut pipe = pipe.take(COMPLAINTS);
    // What could be read is what there is to say.
    let _ = pipe.read_to_end(&mut bytes);
    // The rest is read too, or the process would block.
    let _ = std::io::copy(&mut pipe.into_inner(), &mut std::io::sink());
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The line that says most: what a panic or a fatal error says, else the first.
fn complaint(text: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let panic = lines.iter().position(|line| line.contains("panicked at")).map(|i| i + 1);
    let fatal = lines.iter().position(|line| line.starts_with("fatal error"));
    let line = lines.get(panic.or(fatal).unwrap_or(0))?;
    Some(line.chars().take(160).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Result<Sampler, String> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Sampler::start(command)
    }

    #[test]
    fn rounds_are_answered() {
        let mut sampler = shell("echo ready; while read line; do echo 1 2; done").unwrap();
        assert_eq!(sampler.round(), Ok(vec![1, 2]));
        assert_eq!(sampler.round(), Ok(vec![1, 2]));
    }

    #[test]
    fn an_end_is_explained() {
        let error = shell("echo 'thread x panicked at here:' >&2; echo no luck >&2; exit 3");
        let error = error.err().unwrap();
        assert!(error.contains('3') && error.ends_with("no luck"), "{error}");
        let mut sampler = shell("echo ready; read line; kill -SEGV $$").unwrap();
        assert!(sampler.round().unwrap_err().contains("signal: 11"));
    }

    #[test]
    fn nonsense_is_not_a_number() {
        assert!(shell("echo hello").is_err());
        let mut sampler = shell("echo ready; read line; echo fast").unwrap();
        assert!(sampler.round().unwrap_err().contains("'fast'"));
    }
}
