//! HTTPS by rustls, which knows nothing of heist: it reads and writes a stream.
//!
//! The certificate is made at the start, and signed by itself; the second argument is
//! a file to write it to.
//!
//! ```text
//! cargo run --release -p heist-examples --bin tls -- 127.0.0.1:8443 /tmp/cert.pem
//! curl --cacert /tmp/cert.pem https://localhost:8443/
//! ```

use heist::net::TcpStream;
use heist::{fs, io};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{BufRead, BufReader, Write};
use std::sync::Arc;

#[heist::main]
fn main() -> io::Result<()> {
    let config = Arc::new(config().map_err(io::Error::other)?);
    heist_examples::listen("127.0.0.1:8443", move |stream| serve(stream, config.clone()))
}

fn config() -> Result<ServerConfig, Box<dyn std::error::Error + Send + Sync>> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    if let Some(path) = std::env::args().nth(2) {
        fs::write(path, made.cert.pem())?;
    }
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    Ok(ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())?)
}

fn serve(stream: TcpStream, config: Arc<ServerConfig>) -> io::Result<()> {
    let connection = ServerConnection::new(config).map_err(io::Error::other)?;
    let mut stream = BufReader::new(StreamOwned::new(connection, stream));
    loop {
        // A request without a body, line by line.
        let mut first = String::new();
        if stream.read_line(&mut first)? == 0 {
            return Ok(());
        }
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            if stream.read_line(&mut line)? == 0 {
                return Ok(());
            }
        }
        let body = format!("You said: {first}");
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.get_mut().write_all((head + &body).as_bytes())?;
    }
}
