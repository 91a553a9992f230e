//! A chat over WebSockets by tungstenite, which knows nothing of heist: what one says,
//! all hear.
//!
//! Each connection has two goroutines. One reads, and hands what it hears to all
//! others' channels; the other one writes what comes out of its own channel.
//!
//! ```text
//! cargo run --release -p heist-examples --bin chat -- 127.0.0.1:9001
//! ```

use heist::chan::{self, Sender};
use heist::io::{self, Read, Write};
use heist::net::TcpStream;
use heist::sync::Mutex;
use heist::thread::JoinHandle;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tungstenite::handshake::server::{Request, Response};
use tungstenite::protocol::Role;
use tungstenite::{Message, WebSocket};

/// What a writer writes.
enum Out {
    /// What somebody said.
    Said(Arc<str>),
    /// What the reader's end of the protocol has to say: answers to pings, say.
    Frames(Vec<u8>),
}

/// Who hears what is said.
type Room = Arc<Mutex<Vec<(u64, Sender<Out>)>>>;

/// Messages that a slow listener may be behind; then it is left out.
const BEHIND: usize = 1000;

#[heist::main]
fn main() -> io::Result<()> {
    let room = Room::default();
    heist_examples::listen("127.0.0.1:9001", move |stream| serve(stream, &room))
}

fn serve(stream: TcpStream, room: &Room) -> io::Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);

    let talked = talk(stream, room, number);
    room.lock().unwrap().retain(|(other, _)| *other != number);
    talked?.join().unwrap_or(Ok(()))
}

/// Reads until the other side closes. The writer ends when the room has let go of its
/// channel, too.
fn talk(stream: TcpStream, room: &Room, number: u64) -> io::Result<JoinHandle<io::Result<()>>> {
    let (sender, receiver) = chan::bounded(BEHIND);
    // In the room before the handshake is answered: whoever has the answer hears all that
    // is said from then on. It waits in the channel until there is a writer.
    let (its_room, to_it) = (Arc::clone(room), sender.clone());
    #[allow(clippy::result_large_err)] // tungstenite's
    let enter = move |_: &Request, answer: Response| {
        its_room.lock().unwrap().push((number, to_it));
        Ok(answer)
    };
    let accepted = tungstenite::accept_hdr(stream.try_clone()?, enter).map_err(io::Error::other)?;
    drop(accepted); // the handshake is done; both sides of it are ours

    let writing = stream.try_clone()?;
    let writer = heist::go(move || {
        let mut socket = WebSocket::from_raw_socket(writing, Role::Server, None);
        for out in receiver {
            match out {
                Out::Said(text) => {
                    socket.send(Message::text(&*text)).map_err(io::Error::other)?;
                }
                Out::Frames(bytes) => socket.get_mut().write_all(&bytes)?,
            }
        }
        Ok(())
    });

    let mut socket = WebSocket::from_raw_socket(Reader { stream, sender }, Role::Server, None);
    // Ends when the other side closes, or with an error: both are the end.
    while let Ok(message) = socket.read() {
        if let Message::Text(text) = message {
            let said: Arc<str> = format!("{number}: {text}").into();
            let heard = |out: &Sender<Out>| out.try_send(Out::Said(said.clone())).is_ok();
            room.lock().unwrap().retain(|(_, out)| heard(out));
        }
    }
    Ok(writer)
}

/// A stream that is read from; what is written to it goes through the writer, since
/// two who write at once would mix up their frames.
struct Reader {
    stream: TcpStream,
    sender: Sender<Out>,
}

impl Read for Reader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.stream.read(buf)
    }
}

impl Write for Reader {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let sent = self.sender.send(Out::Frames(buf.to_vec()));
        sent.map(|()| buf.len()).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
