//! `heist::process`.

use super::*;
use heist::process::{Child, ChildStdout, Command, Stdio};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

fn sh(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// The children of this process that have ended and were not waited for.
fn zombies() -> usize {
    let ours = format!(" {} ", std::process::id());
    let stats = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("stat")).ok());
    // pid (name) state parent …
    stats
        .filter_map(|stat| Some(stat.rsplit_once(')')?.1.to_owned()))
        .filter(|rest| rest.starts_with(&format!(" Z{ours}")))
        .count()
}

#[test]
fn a_status_is_what_the_child_says() {
    everywhere(|| {
        assert!(Command::new("true").status().unwrap().success());
        assert_eq!(Command::new("false").status().unwrap().code(), Some(1));
        assert_eq!(sh("exit 42").status().unwrap().code(), Some(42));
        let killed = sh("kill -9 $$").status().unwrap();
        assert_eq!((killed.code(), killed.signal()), (None, Some(9)));
        let missing = Command::new("/no/such/program").spawn().unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        let nowhere = Command::new("true").current_dir("/no/such/folder").status().unwrap_err();
        assert_eq!(nowhere.kind(), ErrorKind::NotFound);
        assert_eq!(Command::new("a\0b").spawn().unwrap_err().kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn output_has_both_streams() {
    everywhere(|| {
        let output = sh("echo out; echo err >&2; exit 3").output().unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));

        // More of both than a pipe has room for.
        let big = sh("head -c 300000 /dev/zero >&2; head -c 300000 /dev/zero").output().unwrap();
        assert_eq!((big.stdout.len(), big.stderr.len()), (300_000, 300_000));

        let quiet = sh("echo out; echo err >&2").stderr(Stdio::null()).output().unwrap();
        assert_eq!((&quiet.stdout[..], &quiet.stderr[..]), (&b"out\n"[..], &b""[..]));
        assert_eq!(Command::new("cat").output().unwrap().stdout, b"", "nothing to read");
    });
}

#[test]
fn what_output_sets_does_not_stay() {
    everywhere(|| {
        let mut command = sh("true");
        command.output().unwrap();
        let mut child = command.spawn().unwrap();
        assert!(child.stdin.is_none() && child.stdout.is_none() && child.stderr.is_none());
        child.wait().unwrap();
        command.stdout(Stdio::piped());
        command.output().unwrap();
        let mut child = command.spawn().unwrap();
        assert!(child.stdout.is_some(), "what the user sets does");
        child.wait().unwrap();
    });
}

#[test]
fn a_dialogue_with_a_child() {
    everywhere(|| {
        let mut child =
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut to = child.stdin.take().unwrap();
        let mut from = BufReader::new(child.stdout.take().unwrap());
        for i in 0..100 {
            writeln!(to, "line {i}").unwrap();
            let mut line = String::new();
            from.read_line(&mut line).unwrap();
            assert_eq!(line, format!("line {i}\n"));
        }
        assert!(child.try_wait().unwrap().is_none());
        drop(to);
        assert_eq!(from.read_line(&mut String::new()).unwrap(), 0);
        assert!(child.wait().unwrap().success());
        assert!(child.wait().unwrap().success(), "again and again");
        assert!(child.try_wait().unwrap().unwrap().success());
    });
}

#[test]
fn wait_closes_what_the_child_reads() {
    everywhere(|| {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        assert!(child.wait().unwrap().success());
        assert!(child.stdin.is_none());
    });
}

#[test]
fn kill_ends_a_child() {
    everywhere(|| {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        assert_eq!(child.try_wait().unwrap(), None);
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        child.kill().unwrap();
    });
}

#[test]
fn environment_folder_and_name() {
    everywhere(|| {
        let folder = Folder::new();
        let mut command = sh("pwd; echo $A-$B-${HOME-none}; echo $0");
        command.env_clear().env("A", "1").envs([("B", "2"), ("C", "3")]).env_remove("C");
        command.current_dir(&folder.0);
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let real = std::fs::canonicalize(&folder.0).unwrap();
        assert_eq!(text, format!("{}\n1-2-none\nsh\n", real.display()));
        assert_eq!(command.get_program(), "sh");
        assert_eq!(command.get_args().count(), 2);
        assert_eq!(command.get_current_dir(), Some(&*folder.0));
        assert_eq!(command.get_envs().count(), 2);
        assert_eq!(format!("{:?}", Command::new("x").arg("y z")), r#""x" "y z""#);

        let renamed = Command::new("sh").arg0("other").args(["-c", "echo $0"]).output().unwrap();
        assert_eq!(renamed.stdout, b"other\n");
        let own_group = sh("ps -o pgid= -p $$; echo $$").process_group(0).output().unwrap();
        let numbers = String::from_utf8(own_group.stdout).unwrap();
        let numbers: Vec<u32> = numbers.split_whitespace().map(|n| n.parse().unwrap()).collect();
        assert_eq!(numbers[0], numbers[1]);
    });
}

#[test]
fn children_are_connected_by_pipes() {
    everywhere(|| {
        let mut first = sh("echo one two").stdout(Stdio::piped()).spawn().unwrap();
        let through = first.stdout.take().unwrap();
        let last = Command::new("wc").arg("-w").stdin(through).output().unwrap();
        assert_eq!(String::from_utf8(last.stdout).unwrap().trim(), "2");
        first.wait().unwrap();

        let (mut reader, writer) = heist::io::pipe().unwrap();
        // A child that is given a pipe expects it to block: more than it has room for.
        let script = "head -c 200000 /dev/zero && echo done >&2";
        let mut child = sh(script).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes.len(), 200_000);
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(said, "done\n");
        child.wait().unwrap();

        let folder = Folder::new();
        let file = heist::fs::File::create(folder.join("out")).unwrap();
        assert!(sh("echo to a file").stdout(file).status().unwrap().success());
        assert_eq!(std::fs::read(folder.join("out")).unwrap(), b"to a file\n");
    });
}

#[test]
fn streams_are_descriptors() {
    everywhere(|| {
        let mut child = sh("echo text").stdout(Stdio::piped()).spawn().unwrap();
        let text = format!("{child:?}");
        assert_eq!(
            text, "Child { stdin: None, stdout: Some(ChildStdout { .. }), stderr: None, .. }",
            "as std prints it"
        );
        let fd = OwnedFd::from(child.stdout.take().unwrap());
        let mut bytes = Vec::new();
        // Blocking again, for whoever it is now.
        std::fs::File::from(fd).read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, b"text\n");
        child.wait().unwrap();

        let mut child = sh("echo more").stdout(Stdio::piped()).spawn().unwrap();
        let fd = OwnedFd::from(child.stdout.take().unwrap());
        let mut text = String::new();
        ChildStdout::from(fd).read_to_string(&mut text).unwrap();
        assert_eq!(text, "more\n");
        child.wait().unwrap();
    });
}

#[test]
fn a_child_runs_code_of_ours_before_its_program() {
    everywhere(|| {
        let mut command = sh("umask");
        // SAFETY: umask is async-signal-safe.
        unsafe {
            command.pre_exec(|| {
                libc::umask(0o27);
                Ok(())
            })
        };
        assert_eq!(command.output().unwrap().stdout, b"0027\n");
        let mut command = sh("true");
        // SAFETY: does nothing.
        unsafe { command.pre_exec(|| Err(std::io::Error::from_raw_os_error(libc::EPERM))) };
        assert_eq!(command.spawn().unwrap_err().kind(), ErrorKind::PermissionDenied);
    });
}

/// On one P all of these wait at the same time, in the poller, and so does another
/// goroutine's sleep: nobody who waits for a child holds a P, or a thread.
#[test]
fn whoever_waits_for_a_child_stops_nobody() {
    watched(|| {
        runtime(1).run(|| {
            let children: Vec<Child> = (0..20)
                .map(|_| Command::new("cat").stdin(Stdio::piped()).spawn().unwrap())
                .collect();
            let mut ends = Vec::new();
            let mut waiters = Vec::new();
            for mut child in children {
                ends.push(child.stdin.take());
                waiters.push(waiting(move || child.wait().unwrap()));
            }
            for _ in 0..10 {
                heist::thread::sleep(Duration::from_millis(1));
            }
            assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
            drop(ends);
            for waiter in waiters {
                assert!(waiter.join().unwrap().success());
            }
        });
    });
}

#[test]
fn nothing_is_left_of_a_hundred_children() {
    if let Some(output) = in_a_process() {
        assert!(output.status.success(), "{}", stderr(&output));
        return;
    }
    watched(|| {
        runtime(4).run(|| {
            warm_up();
            let before = descriptors();
            heist::thread::scope(|scope| {
                for i in 0..10 {
                    scope.spawn(move || {
                        for j in 0..10 {
                            let output = sh(&format!("echo {i} {j}")).output().unwrap();
                            assert_eq!(output.stdout, format!("{i} {j}\n").into_bytes());
                        }
                    });
                }
            });
            until(|| heist::runtime::num_goroutines() == 1);
            assert_eq!(descriptors(), before);
            assert_eq!(zombies(), 0);
        });
    });
}

#[test]
fn a_dropped_child_goes_on() {
    everywhere(|| {
        let folder = Folder::new();
        let path = folder.join("done");
        let (mut reader, writer) = heist::io::pipe().unwrap();
        let script = format!("read line; touch {}", path.display());
        let mut child = sh(&script).stdin(Stdio::piped()).stdout(writer).spawn().unwrap();
        let mut to = child.stdin.take().unwrap();
        drop(child);
        to.write_all(b"go\n").unwrap();
        // Ends when the child does.
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);
        assert!(path.exists());
    });
}
