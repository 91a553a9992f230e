//! The chat under a client in Python, which needs nothing but Python.

mod common;

use common::*;

const CLIENT: &str = r#"
import base64, os, socket, struct, sys

class Client:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.file = self.socket.makefile("rb")
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall((
            "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n").encode())
        assert b"101" in self.file.readline()
        while self.file.readline() != b"\r\n":
            pass

    def send(self, payload, opcode=1):
        mask = os.urandom(4)
        masked = bytes(b ^ mask[i % 4] for i, b in enumerate(payload))
        self.socket.sendall(struct.pack("!BB", 0x80 | opcode, 0x80 | len(payload)) + mask + masked)

    def receive(self):
        head, length = self.file.read(2)
        return head & 15, self.file.read(length)

port = int(sys.argv[1])
clients = [Client(port) for _ in range(5)]
for number, speaker in enumerate(clients):
    speaker.send(b"hello from %d" % number)
    for listener in clients:
        opcode, text = listener.receive()
        assert opcode == 1 and text.endswith(b": hello from %d" % number), text
clients[0].send(b"are you there", opcode=9)
assert clients[0].receive() == (10, b"are you there")
clients[0].send(b"", opcode=8)
assert clients[0].receive()[0] == 8
clients[1].socket.close()
clients[2].send(b"who is left")
for listener in clients[2:]:
    assert listener.receive()[1].endswith(b": who is left")
print("all heard")
"#;

#[test]
fn what_one_says_all_hear() {
    if !has("python3") {
        return;
    }
    let server = Server::start(env!("CARGO_BIN_EXE_chat"), &[]);
    let said = success("python3", &["-c", CLIENT, server.port()]);
    assert_eq!(said, "all heard\n");
}

#[test]
fn under_a_client_library() {
    if !has_module("websockets") {
        return;
    }
    let server = Server::start(env!("CARGO_BIN_EXE_chat"), &[]);
    let script = r#"
import sys
from websockets.sync.client import connect
url = f"ws://127.0.0.1:{sys.argv[1]}"
with connect(url) as one, connect(url) as two:
    two.send("from two"); two.recv()
    assert one.recv(timeout=60).endswith(": from two")
    one.ping().wait(60)
    for i in range(100):
        one.send("x" * 1000); one.recv(timeout=60)
    assert all(two.recv(timeout=60).endswith("x" * 1000) for i in range(100))
print("well")
"#;
    assert_eq!(success("python3", &["-c", script, server.port()]), "well\n");
}
