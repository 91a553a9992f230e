//! `heist::io::copy`, between all that it knows.

use super::*;
use heist::fs::{self, File, OpenOptions};
use heist::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use heist::net::{Shutdown, TcpListener, TcpStream, UnixStream};
use heist::process::{Command, Stdio};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// More than a pipe and the buffers of two sockets have room for.
const LARGE: usize = 8 << 20;

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 253) as u8).collect()
}

fn tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

/// Whether the open file is in non-blocking mode.
fn is_nonblocking(fd: &impl AsRawFd) -> bool {
    // SAFETY: takes no pointers.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) & libc::O_NONBLOCK != 0 }
}

/// Whether the peer has closed the connection.
fn is_closed(stream: &TcpStream) -> bool {
    let mut poll = libc::pollfd { fd: stream.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: one live entry.
    assert!(unsafe { libc::poll(&mut poll, 1, 0) } >= 0);
    poll.revents & libc::POLLRDHUP != 0
}

/// Writes bytes to one end and closes it, and reads all from another, meanwhile.
fn through<W, R>(
    data: &[u8],
    mut write: W,
    close: impl FnOnce(&mut W) + Send + 'static,
    mut read: R,
    copies: impl FnOnce() -> u64,
) where
    W: Write + Send + 'static,
    R: Read + Send + 'static,
{
    let written = data.to_vec();
    let writing = heist::go(move || {
        write.write_all(&written).unwrap();
        close(&mut write);
    });
    let reading = heist::go(move || {
        let mut all = Vec::new();
        read.read_to_end(&mut all).unwrap();
        all
    });
    assert_eq!(copies(), data.len() as u64);
    writing.join().unwrap();
    assert!(reading.join().unwrap() == data);
}

#[test]
fn from_socket_to_socket() {
    everywhere(|| {
        for len in [0, 1, 1000, LARGE] {
            let (client, mut from) = tcp();
            let (mut to, server) = tcp();
            let close = |client: &mut TcpStream| client.shutdown(Shutdown::Write).unwrap();
            through(&bytes(len), client, close, server, || {
                let copied = io::copy(&mut from, &mut to).unwrap();
                assert!(!is_nonblocking(&from) && !is_nonblocking(&to), "as it was");
                drop(to);
                copied
            });
        }
    });
}

#[test]
fn both_directions_at_once() {
    everywhere(|| {
        let (mut client, near) = tcp();
        let (far, mut server) = tcp();
        let (a, b) = (near.try_clone().unwrap(), far.try_clone().unwrap());
        let there = heist::go(move || io::copy(&mut &near, &mut &far).unwrap());
        let back = heist::go(move || io::copy(&mut &b, &mut &a).unwrap());
        for i in 0..200 {
            let ball = bytes(1 + i * 37);
            let mut buf = vec![0; ball.len()];
            client.write_all(&ball).unwrap();
            server.read_exact(&mut buf).unwrap();
            server.write_all(&buf).unwrap();
            client.read_exact(&mut buf).unwrap();
            assert!(buf == ball);
        }
        client.shutdown(Shutdown::Write).unwrap();
        server.shutdown(Shutdown::Write).unwrap();
        let sum = (0..200).map(|i| 1 + i * 37).sum::<u64>();
        assert_eq!((there.join().unwrap(), back.join().unwrap()), (sum, sum));
    });
}

#[test]
fn from_file_to_socket_and_back() {
    everywhere(|| {
        let folder = Folder::new();
        for len in [0, 5, LARGE] {
            let data = bytes(len);
            fs::write(folder.join("in"), &data).unwrap();
            let (mut to, mut from) = tcp();
            let path = folder.join("out");
            let receives = heist::go(move || {
                let mut file = File::create(path).unwrap();
                io::copy(&mut from, &mut file).unwrap()
            });
            let mut file = File::open(folder.join("in")).unwrap();
            assert_eq!(io::copy(&mut file, &mut to).unwrap(), len as u64);
            assert_eq!(file.stream_position().unwrap(), len as u64);
            drop(to);
            assert_eq!(receives.join().unwrap(), len as u64);
            assert!(fs::read(folder.join("out")).unwrap() == data);
        }
    });
}

#[test]
fn from_the_middle_of_a_file() {
    everywhere(|| {
        let folder = Folder::new();
        fs::write(folder.join("in"), "0123456789").unwrap();
        let mut file = File::open(folder.join("in")).unwrap();
        file.seek(SeekFrom::Start(4)).unwrap();
        let (mut to, mut from) = UnixStream::pair().unwrap();
        assert_eq!(io::copy(&mut &file, &mut &to).unwrap(), 6);
        to.write_all(b"!").unwrap();
        drop(to);
        let mut text = String::new();
        from.read_to_string(&mut text).unwrap();
        assert_eq!(text, "456789!");
    });
}

#[test]
fn from_file_to_file() {
    everywhere(|| {
        let folder = Folder::new();
        let data = bytes(100_000);
        fs::write(folder.join("in"), &data).unwrap();
        let mut from = File::open(folder.join("in")).unwrap();
        let mut to = File::create(folder.join("out")).unwrap();
        assert_eq!(io::copy(&mut from, &mut to).unwrap(), 100_000);
        assert!(fs::read(folder.join("out")).unwrap() == data);
    });
}

#[test]
fn to_a_file_that_is_appended_to() {
    everywhere(|| {
        let folder = Folder::new();
        let path = folder.join("log");
        fs::write(&path, "before ").unwrap();
        let mut log = OpenOptions::new().append(true).open(&path).unwrap();
        let (mut to, mut from) = tcp();
        to.write_all(b"after").unwrap();
        drop(to);
        assert_eq!(io::copy(&mut from, &mut log).unwrap(), 5);
        assert_eq!(fs::read_to_string(&path).unwrap(), "before after");
    });
}

#[test]
fn from_a_file_whose_size_is_not_known() {
    everywhere(|| {
        let (mut to, mut from) = tcp();
        let mut file = File::open("/proc/self/status").unwrap();
        let copied = io::copy(&mut file, &mut to).unwrap();
        drop(to);
        let mut text = String::new();
        from.read_to_string(&mut text).unwrap();
        assert_eq!(text.len() as u64, copied);
        assert!(text.starts_with("Name:"), "{text}");
    });
}

#[test]
fn through_pipes_and_children() {
    everywhere(|| {
        let (client, mut from) = tcp();
        let (reader, mut writer) = io::pipe().unwrap();
        let close = |client: &mut TcpStream| client.shutdown(Shutdown::Write).unwrap();
        through(&bytes(LARGE), client, close, reader, || {
            let copied = io::copy(&mut from, &mut writer).unwrap();
            drop(writer);
            copied
        });

        let folder = Folder::new();
        fs::write(folder.join("in"), bytes(300_000)).unwrap();
        let mut child =
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let path = folder.join("in");
        let feeding =
            heist::go(move || io::copy(&mut File::open(path).unwrap(), &mut stdin).unwrap());
        let mut out = File::create(folder.join("out")).unwrap();
        assert_eq!(io::copy(&mut stdout, &mut out).unwrap(), 300_000);
        assert_eq!(feeding.join().unwrap(), 300_000);
        assert!(child.wait().unwrap().success());
        assert!(fs::read(folder.join("out")).unwrap() == bytes(300_000));
    });
}

#[test]
fn what_is_not_ours_is_copied_as_std_does() {
    everywhere(|| {
        let (mut to, mut from) = tcp();
        assert_eq!(io::copy(&mut &b"by hand"[..], &mut to).unwrap(), 7);
        drop(to);
        let mut text = Vec::new();
        assert_eq!(io::copy(&mut from, &mut text).unwrap(), 7);
        assert_eq!(text, b"by hand");
        let mut some = io::repeat(7).take(10);
        assert_eq!(io::copy(&mut some, &mut io::sink()).unwrap(), 10);
    });
}

#[test]
fn errors_come_through() {
    everywhere(|| {
        let (reader, mut writer) = io::pipe().unwrap();
        drop(reader);
        let mut file = File::open("/proc/self/exe").unwrap();
        assert_eq!(io::copy(&mut file, &mut writer).unwrap_err().kind(), ErrorKind::BrokenPipe);
        let (mut to, mut from) = tcp();
        from.set_read_timeout(Some(std::time::Duration::from_millis(5))).unwrap();
        let error = io::copy(&mut from, &mut to).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock, "as std's read says it");
        assert!(!is_nonblocking(&from));
    });
}

/// Sends a byte out of band.
fn send_urgent(stream: &TcpStream) {
    // SAFETY: the pointer is to one byte.
    let sent = unsafe { libc::send(stream.as_raw_fd(), b"!".as_ptr().cast(), 1, libc::MSG_OOB) };
    assert_eq!(sent, 1);
}

/// The copy stops before the byte, and again before the end.
#[test]
fn a_byte_out_of_band_is_left_out() {
    everywhere(|| {
        let ((mut client, mut server), folder) = (tcp(), Folder::new());
        let path = folder.join("copy");
        let mut file = File::create(&path).unwrap();
        let copies = heist::go(move || io::copy(&mut client, &mut file).unwrap());
        let has = |len| fs::metadata(&path).unwrap().len() == len;
        server.write_all(b"first").unwrap();
        until(|| has(5));
        send_urgent(&server);
        server.write_all(b"after").unwrap();
        until(|| has(10));
        drop(server);
        assert_eq!(copies.join().unwrap(), 10);
        assert_eq!(fs::read(&path).unwrap(), b"firstafter");
    });
}

/// All is there before the copy begins. Splice(2) takes the byte for the end then.
#[test]
fn a_byte_out_of_band_is_not_the_end() {
    everywhere(|| {
        let ((mut client, mut server), folder) = (tcp(), Folder::new());
        server.write_all(b"first").unwrap();
        send_urgent(&server);
        server.write_all(b"after").unwrap();
        drop(server);
        until(|| is_closed(&client));
        let path = folder.join("copy");
        assert_eq!(io::copy(&mut client, &mut File::create(&path).unwrap()).unwrap(), 10);
        assert_eq!(fs::read(&path).unwrap(), b"firstafter");
    });
}

#[test]
fn to_a_file_that_is_a_full_pipe() {
    everywhere(|| {
        let folder = Folder::new();
        let path = folder.join("fifo");
        let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a string that ends.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let reader = std::thread::spawn({
            let path = path.clone();
            move || {
                let mut file = std::fs::File::open(path).unwrap();
                std::thread::sleep(Duration::from_millis(50));
                let mut all = Vec::new();
                file.read_to_end(&mut all).unwrap();
                all
            }
        });
        let (mut client, mut server) = tcp();
        let writer = heist::go(move || server.write_all(&bytes(1 << 20)).unwrap());
        let mut file = OpenOptions::new().write(true).open(&path).unwrap();
        assert_eq!(io::copy(&mut client, &mut file).unwrap(), 1 << 20);
        drop(file);
        writer.join().unwrap();
        assert_eq!(reader.join().unwrap(), bytes(1 << 20));
    });
}

/// Whoever says meanwhile that the socket should wait does not make the copy wait in
/// the kernel, where no deadline reaches it.
#[test]
fn a_copy_hears_its_deadline_whatever_the_mode_is_set_to() {
    watched(|| {
        runtime(2).run(|| {
            let ((mut client, from), (to, mut end)) = (tcp(), tcp());
            let from = Arc::new(from);
            let copies = heist::go({
                let from = Arc::clone(&from);
                move || io::copy(&mut &*from, &mut &to).unwrap_err().kind()
            });
            until(|| is_nonblocking(&*from));
            let clone = from.try_clone().unwrap();
            clone.set_nonblocking(false).unwrap();
            assert!(is_nonblocking(&*from), "the copy needs it");
            // Now it goes on after a call that had to wait.
            client.write_all(b"x").unwrap();
            end.read_exact(&mut [0]).unwrap();
            from.set_read_deadline(Some(Instant::now()));
            assert_eq!(copies.join().unwrap(), ErrorKind::TimedOut);
            assert!(!is_nonblocking(&*from), "as it was set last");
        });
    });
}

/// What was set during a copy holds after it.
#[test]
fn a_mode_that_is_set_during_a_copy_stays() {
    watched(|| {
        runtime(2).run(|| {
            let ((client, from), (to, _end)) = (tcp(), tcp());
            let clone = from.try_clone().unwrap();
            let copies = heist::go(move || io::copy(&mut &from, &mut &to).unwrap_err().kind());
            until(|| is_nonblocking(&clone));
            clone.set_nonblocking(true).unwrap();
            (&client).write_all(b"x").unwrap();
            assert_eq!(copies.join().unwrap(), ErrorKind::WouldBlock);
            assert!(is_nonblocking(&clone));
            clone.set_nonblocking(false).unwrap();
            assert!(!is_nonblocking(&clone));
        });
    });
}
