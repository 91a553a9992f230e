//! `heist::io`.

use super::*;
use heist::io::{
    self, BufRead, ErrorKind, IoSlice, IoSliceMut, PipeReader, PipeWriter, Read, Write,
};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Whether an open file is in non-blocking mode.
fn is_nonblocking(fd: &impl AsRawFd) -> bool {
    // SAFETY: takes no pointers.
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
    assert!(flags >= 0);
    flags & libc::O_NONBLOCK != 0
}

#[test]
fn what_goes_into_a_pipe_comes_out() {
    everywhere(|| {
        let (mut reader, mut writer) = io::pipe().unwrap();
        assert_eq!(writer.write_vectored(&[IoSlice::new(b"ab"), IoSlice::new(b"cd")]).unwrap(), 4);
        let (mut a, mut b) = ([0; 1], [0; 2]);
        let mut both = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
        assert_eq!(reader.read_vectored(&mut both).unwrap(), 3);
        assert_eq!((&a, &b), (b"a", b"bc"));
        (&writer).write_all(b"ef").unwrap();
        writer.flush().unwrap();
        let second = writer.try_clone().unwrap();
        drop(writer);
        drop(second);
        let mut rest = String::new();
        (&reader).read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "def");
        assert_eq!(reader.read(&mut a).unwrap(), 0, "the end is the end");
    });
}

/// As std's does on a blocking pipe.
#[test]
fn one_write_writes_everything() {
    const BYTES: usize = 1 << 20; // more than a pipe has room for
    let bytes: Vec<u8> = (0..BYTES).map(|i| (i % 251) as u8).collect();
    let read_late = |mut reader: PipeReader| {
        heist::go(move || {
            heist::thread::sleep(millis(5));
            let mut all = Vec::new();
            reader.read_to_end(&mut all).unwrap();
            all
        })
    };
    everywhere(|| {
        let (reader, mut writer) = io::pipe().unwrap();
        let reading = read_late(reader);
        assert_eq!(writer.write(&bytes).unwrap(), BYTES);
        let slices = [IoSlice::new(&bytes[..100]), IoSlice::new(&bytes[100..])];
        assert_eq!(writer.write_vectored(&slices).unwrap(), BYTES);
        drop(writer);
        let all = reading.join().unwrap();
        assert!(all[..BYTES] == bytes && all[BYTES..] == bytes);

        let (reader, mut writer) = io::pipe().unwrap();
        let closing = heist::go(move || {
            heist::thread::sleep(millis(5));
            drop(reader);
        });
        let written = writer.write(&bytes).unwrap();
        assert!(0 < written && written < BYTES);
        assert_eq!(writer.write(&bytes).unwrap_err().kind(), ErrorKind::BrokenPipe);
        closing.join().unwrap();

        let mut child = heist::process::Command::new("sh");
        child.args(["-c", "sleep 0.01; wc -c"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = child.spawn().unwrap();
        assert_eq!(child.stdin.as_mut().unwrap().write(&bytes).unwrap(), BYTES);
        let counted = child.wait_with_output().unwrap().stdout;
        assert_eq!(String::from_utf8(counted).unwrap().trim(), BYTES.to_string());
    });
}

#[test]
fn a_pipe_without_a_reader_is_broken() {
    everywhere(|| {
        let (reader, mut writer) = io::pipe().unwrap();
        drop(reader);
        assert_eq!(writer.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn readers_and_writers_of_a_pipe_wait_for_each_other() {
    watched(|| {
        for procs in [1, 4] {
            runtime(procs).run(|| {
                let (mut reader, mut writer) = io::pipe().unwrap();
                const BYTES: usize = 1 << 20; // more than a pipe has room for
                let writing = heist::go(move || {
                    let block: Vec<u8> = (0..BYTES).map(|i| (i % 251) as u8).collect();
                    writer.write_all(&block).unwrap();
                });
                let mut all = Vec::new();
                reader.read_to_end(&mut all).unwrap();
                writing.join().unwrap();
                assert_eq!(all.len(), BYTES);
                assert!(all.iter().enumerate().all(|(i, byte)| *byte == (i % 251) as u8));
            });
        }
    });
}

#[test]
fn a_ring_of_pipes() {
    watched(|| {
        runtime(2).run(|| {
            let (readers, mut writers): (Vec<_>, Vec<_>) =
                (0..50).map(|_| io::pipe().unwrap()).unzip();
            writers.rotate_left(1);
            let mut last = None;
            for (i, (mut reader, mut writer)) in readers.into_iter().zip(writers).enumerate() {
                let stage = heist::go(move || {
                    if i == 0 {
                        writer.write_all(&[0]).unwrap();
                    }
                    let mut rounds = 0;
                    let mut byte = [0];
                    while reader.read(&mut byte).unwrap() == 1 && rounds < 100 {
                        rounds += 1;
                        // The next one may have had its rounds.
                        let _ = writer.write_all(&byte);
                    }
                    rounds
                });
                last = Some(stage);
            }
            assert_eq!(last.unwrap().join().unwrap(), 100);
        });
    });
}

/// A hundred goroutines wait for pipes, on one P, and another one is not bothered.
#[test]
fn whoever_waits_for_a_pipe_stops_nobody() {
    watched(|| {
        runtime(1).run(|| {
            let mut writers = Vec::new();
            let readers: Vec<_> = (0..100)
                .map(|_| {
                    let (mut reader, writer) = io::pipe().unwrap();
                    writers.push(writer);
                    heist::go(move || {
                        let mut byte = [0];
                        reader.read_exact(&mut byte).map(|()| byte[0])
                    })
                })
                .collect();
            heist::thread::sleep(Duration::from_millis(5));
            assert!(readers.iter().all(|reader| !reader.is_finished()));
            for (i, writer) in writers.iter_mut().enumerate() {
                writer.write_all(&[i as u8]).unwrap();
            }
            for (i, reader) in readers.into_iter().enumerate() {
                assert_eq!(reader.join().unwrap().unwrap(), i as u8);
            }
        });
    });
}

#[test]
fn ends_of_pipes_are_descriptors() {
    everywhere(|| {
        let (reader, writer) = io::pipe().unwrap();
        assert!(is_nonblocking(&reader) && is_nonblocking(&writer));
        let std = std::io::PipeReader::from(reader);
        assert!(!is_nonblocking(&std), "others expect it to block");
        let text = format!("{std:?}");
        let reader = PipeReader::try_from(std).unwrap();
        assert!(is_nonblocking(&reader));
        assert_eq!(format!("{reader:?}"), text, "Debug is std's");
        let owned = OwnedFd::from(writer);
        assert!(!is_nonblocking(&owned));
        let number = PipeWriter::from(owned).into_raw_fd();
        // SAFETY: it was given away by the line above.
        let mut writer = unsafe { PipeWriter::from_raw_fd(number) };
        assert!(is_nonblocking(&writer));
        writer.write_all(b"!").unwrap();
        let mut byte = [0];
        (&reader).read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"!");
    });
}

/// Runs the calling test in a process of its own with that standard input; `None`
/// there. Returns what it wrote to standard error.
fn with_input(input: Stdio, feed: impl FnOnce(&mut std::process::Child)) -> Option<String> {
    const CHILD: &str = "HEIST_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        return None;
    }
    let test = std::thread::current().name().expect("the thread of a test").to_owned();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &test, "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .stdin(input)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    feed(&mut child);
    let output = child.wait_with_output().unwrap();
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    Some(said)
}

#[test]
fn stdin_from_a_pipe_parks() {
    let Some(said) = with_input(Stdio::piped(), |child| {
        let mut input = child.stdin.take().unwrap();
        // When that is said, the reader waits, and no thread with it.
        let mut said = [0; 8];
        child.stderr.as_mut().unwrap().read_exact(&mut said).unwrap();
        assert_eq!(&said, b"waiting\n");
        input.write_all(b"first\nsecond\nthe rest").unwrap();
    }) else {
        return watched(|| {
            runtime(1).run(|| {
                let reader = waiting(|| {
                    let mut first = String::new();
                    io::stdin().read_line(&mut first).unwrap();
                    let second = io::stdin().lines().next().unwrap().unwrap();
                    let mut rest = Vec::new();
                    io::stdin().read_to_end(&mut rest).unwrap();
                    (first, second, rest)
                });
                eprintln!("waiting");
                let (first, second, rest) = reader.join().unwrap();
                assert_eq!((&*first, &*second, &rest[..]), ("first\n", "second", &b"the rest"[..]));
                assert_eq!(io::stdin().read(&mut [0]).unwrap(), 0);
                assert!(!is_nonblocking(&io::stdin()), "it is shared with others");
                eprintln!("well");
            });
        });
    };
    assert_eq!(said, "well\n");
}

#[test]
fn stdin_from_a_file() {
    let folder = Folder::new();
    std::fs::write(folder.join("in"), "one\ntwo\n").unwrap();
    let file = std::fs::File::open(folder.join("in")).unwrap();
    let Some(_) = with_input(file.into(), |_| {}) else {
        return watched(|| {
            runtime(1).run(|| {
                let lines: Vec<_> = io::stdin().lock().lines().map(Result::unwrap).collect();
                assert_eq!(lines, ["one", "two"]);
                assert!(!io::stdin().is_terminal());
            });
        });
    };
}

#[test]
fn stdin_from_nowhere() {
    let Some(_) = with_input(Stdio::null(), |_| {}) else {
        return watched(|| {
            runtime(1).run(|| {
                assert_eq!(io::stdin().read(&mut [0; 10]).unwrap(), 0);
            });
        });
    };
}

#[test]
fn stdout_and_its_lock() {
    let Some(output) = in_a_process() else {
        return watched(|| {
            runtime(4).run(|| {
                writeln!(io::stdout()).unwrap(); // ends what the test harness has begun
                heist::thread::scope(|scope| {
                    for i in 0..8 {
                        scope.spawn(move || {
                            for _ in 0..20 {
                                let mut out = io::stdout().lock();
                                write!(out, "<{i}").unwrap();
                                // Held while the goroutine waits, and by whoever has it.
                                heist::thread::sleep(Duration::from_micros(10));
                                write!(io::stdout(), "{i}").unwrap();
                                writeln!(out, "{i}>").unwrap();
                                assert_eq!(format!("{out:?}"), "StdoutLock { .. }");
                            }
                        });
                    }
                });
                io::stdout().flush().unwrap();
                writeln!(io::stderr().lock(), "all written").unwrap();
            });
        });
    };
    assert!(output.status.success() && stderr(&output).contains("all written"));
    let said = String::from_utf8(output.stdout).unwrap();
    let whole = said.lines().filter(|line| line.starts_with('<') && line.ends_with('>'));
    let whole: Vec<&str> = whole.collect();
    assert_eq!(whole.len(), 160, "{said}");
    assert!(whole.iter().all(|line| line.len() == 5 && line[1..2].repeat(3) == line[1..4]));
}

#[test]
fn nothing_is_left_of_a_thousand_pipes() {
    if let Some(output) = in_a_process() {
        assert!(output.status.success(), "{}", stderr(&output));
        return;
    }
    watched(|| {
        runtime(4).run(|| {
            let once = || {
                let (mut reader, mut writer) = io::pipe().unwrap();
                let wrote = heist::go(move || writer.write_all(b"x").unwrap());
                reader.read_exact(&mut [0]).unwrap();
                wrote.join().unwrap();
            };
            warm_up();
            let before = descriptors();
            heist::thread::scope(|scope| {
                for _ in 0..100 {
                    scope.spawn(|| (0..10).for_each(|_| once()));
                }
            });
            until(|| heist::runtime::num_goroutines() == 1);
            assert_eq!(descriptors(), before);
        });
    });
}
