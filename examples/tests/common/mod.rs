//! What the tests of the examples share: a server in a process of its own, and tools
//! that may be missing.

// Each test program uses a part of it.
#![allow(dead_code, unreachable_pub)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// A server, which is asked to end when the test does.
pub struct Server {
    child: Child,
    pub address: String,
}

impl Server {
    /// Starts an example on a port that is free.
    pub fn start(program: &str, args: &[&str]) -> Server {
        let mut command = Command::new(program);
        Server::started(command.arg("127.0.0.1:0").args(args))
    }

    /// Starts an example that may have so many descriptors; what it complains of is kept.
    pub fn start_limited(program: &str, descriptors: usize) -> Server {
        let limit = format!("ulimit -n {descriptors}; exec \"$0\" 127.0.0.1:0");
        Server::started(Command::new("sh").args(["-c", &limit, program]).stderr(Stdio::piped()))
    }

    fn started(command: &mut Command) -> Server {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::with_capacity(1, child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").expect(&line).to_owned();
        Server { child, address }
    }

    pub fn port(&self) -> &str {
        self.address.rsplit_once(':').unwrap().1
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// How many descriptors it has open.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    /// The most memory that it has had, in MiB.
    pub fn peak_memory(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().trim_end_matches(" kB").parse::<usize>().unwrap() / 1024
    }

    /// How many it keeps for itself, when nobody is connected: as many for a fifth of a
    /// second. Some it opens late, and connections that have ended are closed a moment later.
    pub fn own_descriptors(&self) -> usize {
        let (mut before, mut same) = (self.descriptors(), 0);
        while same < 40 {
            std::thread::sleep(Duration::from_millis(5));
            let now = self.descriptors();
            same = if now == before { same + 1 } else { 0 };
            before = now;
        }
        before
    }

    /// Whether it has at most so many open again, soon.
    pub fn settles_at(&self, descriptors: usize) -> bool {
        (0..2000).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            self.descriptors() <= descriptors
        })
    }

    pub fn signal(&self, name: &str) {
        run("kill", &[&format!("-{name}"), &self.child.id().to_string()]);
    }

    /// Waits until it has said so.
    pub fn says(&mut self, text: &str) {
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            let stdout = self.child.stdout.as_mut().unwrap();
            let read = BufReader::with_capacity(1, stdout).read_line(&mut line).unwrap();
            assert_ne!(read, 0, "it ends without saying: {text}");
        }
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for its end.
    pub fn ended(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    /// What it has complained of, to its end.
    pub fn errors(&mut self) -> String {
        let mut text = String::new();
        self.child.stderr.as_mut().unwrap().read_to_string(&mut text).unwrap();
        text
    }

    /// Asks it to end, and waits for that.
    pub fn stop(mut self) -> Option<i32> {
        self.signal("TERM");
        self.ended()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a program to its end.
pub fn run(program: &str, args: &[&str]) -> Output {
    Command::new(program).args(args).stdin(Stdio::null()).output().unwrap()
}

/// Runs a program that has to succeed; returns what it says.
pub fn success(program: &str, args: &[&str]) -> String {
    let output = run(program, args);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {}\n{said}\n{errors}", output.status);
    said
}

/// Whether a tool is there. A test that goes without it says so: it has tested less.
pub fn has(tool: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let there = std::env::split_paths(&paths).any(|path| path.join(tool).is_file());
    if !there {
        eprintln!("skipped: there is no {tool}; install it to test with it");
    }
    there
}

/// Whether a Python module is there.
pub fn has_module(module: &str) -> bool {
    let there =
        has("python3") && run("python3", &["-c", &format!("import {module}")]).status.success();
    if !there {
        eprintln!("skipped: Python has no module {module}; `pip install {module}` to test with it");
    }
    there
}

/// Sends, and reads so many bytes.
pub fn exchange(mut stream: &TcpStream, bytes: &[u8], answer: usize) -> Vec<u8> {
    stream.write_all(bytes).unwrap();
    let mut buf = vec![0; answer];
    stream.read_exact(&mut buf).unwrap();
    buf
}

/// A folder that is gone at the end.
pub struct Folder(pub std::path::PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("heist-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl AsRef<Path> for Folder {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}
