//! The proxy: in front of the echo server, and of PostgreSQL under pgbench.

mod common;

use common::*;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::path::PathBuf;
use std::process::{Command, Stdio};

#[test]
fn bytes_go_through_in_both_directions() {
    let server = Server::start(env!("CARGO_BIN_EXE_echo"), &[]);
    let proxy = Server::start(env!("CARGO_BIN_EXE_proxy"), &[&server.address]);
    let stream = proxy.connect();
    for i in 0..100 {
        let bytes = vec![i; 1 + i as usize * 10];
        assert_eq!(exchange(&stream, &bytes, bytes.len()), bytes);
    }
    // More than all buffers together, with an end that is passed on.
    let mut reading = stream.try_clone().unwrap();
    let writing = std::thread::spawn(move || {
        let mut stream = stream;
        let block: Vec<u8> = (0..1 << 20).map(|i| (i % 251) as u8).collect();
        for _ in 0..32 {
            stream.write_all(&block).unwrap();
        }
        stream.shutdown(Shutdown::Write).unwrap();
    });
    let mut all = Vec::new();
    reading.read_to_end(&mut all).unwrap();
    writing.join().unwrap();
    assert_eq!(all.len(), 32 << 20);
    assert!(all.chunks(1 << 20).all(|c| c.iter().enumerate().all(|(i, b)| *b == (i % 251) as u8)));
}

#[test]
fn a_server_that_is_not_there() {
    // A port that was free a moment ago.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let proxy = Server::start(env!("CARGO_BIN_EXE_proxy"), &[&gone.to_string()]);
    let mut stream = proxy.connect();
    assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
}

/// PostgreSQL's own programs, the newest that is installed.
fn postgres() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut found: Vec<_> = versions.filter_map(|v| Some(v.ok()?.path().join("bin"))).collect();
    found.retain(|bin| bin.join("initdb").is_file());
    found.sort();
    found.pop()
}

#[test]
fn postgresql_under_pgbench() {
    let Some(bin) = postgres() else {
        eprintln!("skipped: there is no PostgreSQL; install it to test with it");
        return;
    };
    if !has("pgbench") || !has("psql") || !has("id") {
        return;
    }
    // PostgreSQL does not run as root.
    let root = success("id", &["-u"]).trim() == "0";
    if root && !has("runuser") {
        return;
    }
    let program = |name: &str| {
        let path = bin.join(name);
        let mut command = match root {
            true => Command::new("runuser"),
            false => Command::new(&path),
        };
        if root {
            command.args(["-u", "postgres", "--"]).arg(&path);
        }
        command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null());
        command
    };
    let folder = Folder::new("postgres");
    if root {
        success("chown", &["postgres", folder.0.to_str().unwrap()]);
    }
    let data = folder.0.join("data");
    let made = program("initdb").args(["-A", "trust", "-U", "postgres", "-D"]).arg(&data).status();
    assert!(made.unwrap().success());
    // One that nobody gets who asks for any, as the servers of the other tests do: the kernel
    // chooses those from 32768 on.
    let first = 20_000 + (std::process::id() % 10_000) as u16;
    let is_free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let port = (first..first + 1000).find(is_free).expect("a free port").to_string();
    let mut server = program("postgres")
        .arg("-D")
        .arg(&data)
        .args(["-F", "-p", &port, "-h", "127.0.0.1", "-k"])
        .arg(&folder.0)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let at = ["-h", "127.0.0.1", "-p", &port];
    let ready = (0..300).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        program("pg_isready").args(at).status().unwrap().success()
    });

    let proxy = Server::start(env!("CARGO_BIN_EXE_proxy"), &[&format!("127.0.0.1:{port}")]);
    let through = ["-h", "127.0.0.1", "-p", proxy.port(), "-U", "postgres", "postgres"];
    let tested = std::panic::catch_unwind(|| {
        assert!(ready, "PostgreSQL does not start");
        success("pgbench", &[&["-i", "-q"][..], &through].concat());
        let said = success("pgbench", &[&["-c", "8", "-t", "50"][..], &through].concat());
        assert!(said.contains("actually processed: 400/400"), "{said}");
        // Rows that fill many buffers.
        let rows = ["-Atc", "select repeat('x', 1000) from generate_series(1, 10000)"];
        assert_eq!(success("psql", &[&rows[..], &through].concat()).len(), 10_010_000);
    });
    program("pg_ctl").args(["stop", "-m", "immediate", "-D"]).arg(&data).status().unwrap();
    server.wait().unwrap();
    if let Err(panic) = tested {
        std::panic::resume_unwind(panic);
    }
}
