//! The TLS server under curl.

mod common;

use common::*;

#[test]
fn curl_trusts_it() {
    if !has("curl") {
        return;
    }
    let folder = Folder::new("tls");
    let certificate = folder.0.join("cert.pem");
    let certificate = certificate.to_str().unwrap();
    let server = Server::start(env!("CARGO_BIN_EXE_tls"), &[certificate]);
    let url = |path: &str| format!("https://localhost:{}/{path}", server.port());
    let at = format!("localhost:{}:127.0.0.1", server.port());
    let common = ["-sS", "--cacert", certificate, "--resolve", &at];
    let (one, two) = (url("one"), url("two"));
    // Two requests on one connection.
    let said = success("curl", &[&common[..], &[&one, &two]].concat());
    assert_eq!(said, "You said: GET /one HTTP/1.1\r\nYou said: GET /two HTTP/1.1\r\n");
    let said = success("curl", &[&common[..], &["--tlsv1.2", "--tls-max", "1.2", &one]].concat());
    assert_eq!(said, "You said: GET /one HTTP/1.1\r\n");
    // Without the certificate it is nobody's friend.
    assert!(!run("curl", &["-sS", "--resolve", &at, &one]).status.success());
}
