//! The HTTP server, with a client of std's, curl and wrk.

mod common;

use common::*;
use std::io::Read;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nServer: heist\r\nContent-Type: text/plain\r\n\
    Content-Length: 13\r\n\r\nHello, World!";
const REQUEST: &[u8] = b"GET /plaintext HTTP/1.1\r\nHost: x\r\n\r\n";

fn server() -> Server {
    Server::start(env!("CARGO_BIN_EXE_http"), &[])
}

#[test]
fn one_connection_many_requests() {
    let server = server();
    let stream = server.connect();
    for _ in 0..100 {
        assert_eq!(exchange(&stream, REQUEST, ANSWER.len()), ANSWER);
    }
    // Sixteen at once, and one byte at a time.
    assert_eq!(exchange(&stream, &REQUEST.repeat(16), ANSWER.len() * 16), ANSWER.repeat(16));
    for byte in &REQUEST[..REQUEST.len() - 1] {
        exchange(&stream, &[*byte], 0);
    }
    assert_eq!(exchange(&stream, b"\n", ANSWER.len()), ANSWER);
}

#[test]
fn connections_end_as_the_client_wants() {
    let server = server();
    let answer = |request: &str| {
        let mut stream = server.connect();
        exchange(&stream, request.as_bytes(), 0);
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let last = answer("GET /plaintext HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert!(last.starts_with("HTTP/1.1 200 ") && last.contains("Connection: close"), "{last}");
    assert!(answer("GET /plaintext HTTP/1.0\r\n\r\n").ends_with("Hello, World!"));
    assert!(answer("GET /other HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 404 "));
    assert!(answer("no such thing\r\n\r\n").starts_with("HTTP/1.1 400 "));
    // As long as it bears, and not longer: what is left unread would reset the connection.
    let long = format!("{:x<4096}", "GET / HTTP/1.1\r\nLong: ");
    assert!(answer(&long).starts_with("HTTP/1.1 431 "));
}

#[test]
fn under_curl_and_wrk() {
    let server = server();
    let url = format!("http://{}/plaintext", server.address);
    if has("curl") {
        assert_eq!(success("curl", &["-sS", &url, &url]), "Hello, World!Hello, World!");
    }
    if has("wrk") {
        let said = success("wrk", &["-t1", "-c64", "-d1", "--latency", &url]);
        assert!(said.contains("requests in"), "{said}");
        assert!(!said.contains("Socket errors") && !said.contains("Non-2xx"), "{said}");
    }
}
