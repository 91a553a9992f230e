//! Connections, each with a goroutine at either end.

use super::{Finding, Source, each, grouped, runtime};
use heist::net::{TcpListener, TcpStream};
use std::io::{self, Read, Write};
use std::time::Instant;

/// No more than a listener keeps waiting: those past that would try again in a second.
const CONNECTIONS: u64 = 100;
const ROUNDS: u64 = 200;

pub(super) fn visit() -> Finding {
    let procs = heist::thread::available_parallelism().map_or(1, usize::from);
    let runtime = runtime(procs);
    let start = Instant::now();
    let answered = runtime.run(echo).unwrap_or(0);
    let took = start.elapsed();
    let total = CONNECTIONS * ROUNDS;
    Finding {
        claim: format!(
            "{} requests over {CONNECTIONS} connections, blocking code at both ends, {} threads",
            grouped(total),
            runtime.stats().threads
        ),
        holds: answered == total,
        measured: vec![format!(
            "echo    in {} a request, both ends on this machine",
            each(took, total)
        )],
        source: Source {
            file: "heist/src/sched/netpoll.rs",
            text: include_str!("../../../heist/src/sched/netpoll.rs"),
            line: "pub(crate) fn deliver",
        },
    }
}

/// How many requests got their own answer.
fn echo() -> io::Result<u64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    drop(heist::go(move || {
        for stream in listener.incoming().take(CONNECTIONS as usize).flatten() {
            drop(heist::go(move || serve(stream)));
        }
    }));
    let clients: Vec<_> = (0..CONNECTIONS)
        .map(|client| {
            heist::go(move || -> io::Result<u64> {
                let mut stream = TcpStream::connect(address)?;
                let mut right = 0;
                for round in 0..ROUNDS {
                    let request = (client << 32 | round).to_le_bytes();
                    stream.write_all(&request)?;
                    let mut answer = [0; 8];
                    stream.read_exact(&mut answer)?;
                    right += u64::from(answer == request);
                }
                Ok(right)
            })
        })
        .collect();
    clients.into_iter().map(|client| client.join().unwrap_or(Ok(0))).sum()
}

fn serve(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = [0; 64];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            n => stream.write_all(&buffer[..n])?,
        }
    }
}
