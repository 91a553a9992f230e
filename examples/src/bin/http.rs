//! HTTP/1.1 with keep-alive and pipelining: the "plaintext" of web benchmarks.
//!
//! ```text
//! cargo run --release -p heist-examples --bin http -- 127.0.0.1:8080
//! wrk -t1 -c64 -d5 --latency http://127.0.0.1:8080/plaintext
//! ```

use heist::io;
use heist::io::{Read, Write};
use heist::net::TcpStream;

const BODY: &str = "Hello, World!";

#[heist::main]
fn main() -> io::Result<()> {
    heist_examples::listen("127.0.0.1:8080", serve)
}

fn serve(mut stream: TcpStream) -> io::Result<()> {
    let (mut buf, mut filled) = (vec![0; 4096], 0);
    let mut out = Vec::with_capacity(4096);
    loop {
        let mut used = 0;
        let mut open = true;
        // All that has come is answered in one write.
        while open && used < filled {
            match answer(&buf[used..filled], &mut out) {
                Answer::Next(n) => used += n,
                Answer::Last => open = false,
                Answer::Incomplete => break,
            }
        }
        if !out.is_empty() {
            stream.write_all(&out)?;
            out.clear();
        }
        if !open {
            return Ok(());
        }
        buf.copy_within(used..filled, 0);
        filled -= used;
        if filled == buf.len() {
            return stream.write_all(b"HTTP/1.1 431 Request Header Fields Too Large\r\n\r\n");
        }
        match stream.read(&mut buf[filled..])? {
            0 => return Ok(()),
            n => filled += n,
        }
    }
}

enum Answer {
    /// One request was that long.
    Next(usize),
    /// The connection ends after this one.
    Last,
    /// More of it has to come.
    Incomplete,
}

fn answer(buf: &[u8], out: &mut Vec<u8>) -> Answer {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(buf) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Answer::Incomplete,
        Err(_) => {
            out.extend_from_slice(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
            return Answer::Last;
        }
    };
    let asks = |name: &str, value: &str| {
        request.headers.iter().any(|header| {
            header.name.eq_ignore_ascii_case(name)
                && header.value.eq_ignore_ascii_case(value.as_bytes())
        })
    };
    let keep = match request.version {
        Some(1) => !asks("connection", "close"),
        _ => asks("connection", "keep-alive"),
    };
    let (status, body) = match request.path {
        Some("/plaintext") => ("200 OK", BODY),
        _ => ("404 Not Found", ""),
    };
    let _ = write!(
        out,
        "HTTP/1.1 {status}\r\nServer: heist\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n",
        body.len()
    );
    out.extend_from_slice(if keep { b"\r\n" } else { b"Connection: close\r\n\r\n" });
    out.extend_from_slice(body.as_bytes());
    if keep { Answer::Next(length) } else { Answer::Last }
}
