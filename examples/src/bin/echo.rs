//! Sends back what it is sent.
//!
//! ```text
//! cargo run --release -p heist-examples --bin echo -- 127.0.0.1:7000
//! ```

use heist::io;
use heist::io::{Read, Write};
use heist::net::TcpStream;

#[heist::main]
fn main() -> io::Result<()> {
    heist_examples::listen("127.0.0.1:7000", echo)
}

fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut buf = vec![0; 4096];
    loop {
        match stream.read(&mut buf)? {
            0 => return Ok(()),
            n => stream.write_all(&buf[..n])?,
        }
    }
}
