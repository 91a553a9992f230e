//! Stands between clients and a server, of PostgreSQL say: each connection is two
//! goroutines that copy, inside the kernel where that helps.
//!
//! ```text
//! cargo run --release -p heist-examples --bin proxy -- 127.0.0.1:6432 127.0.0.1:5432
//! pgbench -h 127.0.0.1 -p 6432 …
//! ```

use heist::io;
use heist::net::{Shutdown, TcpStream};

#[heist::main]
fn main() -> io::Result<()> {
    let server = std::env::args().nth(2).unwrap_or_else(|| "127.0.0.1:5432".to_owned());
    heist_examples::listen("127.0.0.1:6432", move |client| proxy(&client, &server))
}

fn proxy(client: &TcpStream, server: &str) -> io::Result<()> {
    let server = TcpStream::connect(server)?;
    server.set_nodelay(true)?;
    heist::thread::scope(|scope| {
        let there = scope.spawn(|| forward(client, &server));
        let back = forward(&server, client);
        there.join().unwrap_or(Ok(())).and(back)
    })
}

/// Copies until the end, and passes the end on.
fn forward(mut from: &TcpStream, mut to: &TcpStream) -> io::Result<()> {
    let copied = io::copy(&mut from, &mut to);
    // One that is gone already does not need to be told.
    let _ = to.shutdown(Shutdown::Write);
    copied.map(drop)
}
