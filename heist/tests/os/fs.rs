//! `heist::fs`.

use super::*;
use heist::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use heist::os::unix::fs::symlink;
use std::io::{BufRead, BufReader, ErrorKind, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::{
    DirBuilderExt, DirEntryExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt,
};
use std::time::{Duration, SystemTime};

#[test]
fn what_is_written_is_read() {
    everywhere(|| {
        let folder = Folder::new();
        let path = folder.join("a");
        let mut file = File::create(&path).unwrap();
        file.write_all(b"one ").unwrap();
        (&file).write_all(b"two ").unwrap();
        assert_eq!(file.write_vectored(&[IoSlice::new(b"th"), IoSlice::new(b"ree")]).unwrap(), 5);
        file.flush().unwrap();
        drop(file);

        let mut text = String::new();
        assert_eq!(File::open(&path).unwrap().read_to_string(&mut text).unwrap(), 13);
        assert_eq!(text, "one two three");
        assert_eq!(fs::read(&path).unwrap(), b"one two three");
        assert_eq!(fs::read_to_string(&path).unwrap(), "one two three");

        let file = File::open(&path).unwrap();
        let (mut a, mut b) = ([0; 3], [0; 5]);
        let mut both = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
        assert_eq!((&file).read_vectored(&mut both).unwrap(), 8);
        assert_eq!((&a, &b), (b"one", b" two "));
        let mut rest = Vec::new();
        (&file).read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"three");
        assert_eq!((&file).read(&mut a).unwrap(), 0, "the end is the end");

        fs::write(&path, "x\ny\n").unwrap();
        let lines: Vec<_> =
            BufReader::new(File::open(&path).unwrap()).lines().map(Result::unwrap).collect();
        assert_eq!(lines, ["x", "y"]);
    });
}

#[test]
fn seeking_and_reading_at() {
    everywhere(|| {
        let folder = Folder::new();
        let path = folder.join("a");
        let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.write_all(b"0123456789").unwrap();
        assert_eq!(file.seek(SeekFrom::Start(2)).unwrap(), 2);
        assert_eq!(file.seek(SeekFrom::Current(3)).unwrap(), 5);
        assert_eq!(file.stream_position().unwrap(), 5);
        assert_eq!(file.seek(SeekFrom::End(-4)).unwrap(), 6);
        assert_eq!(file.seek(SeekFrom::End(-11)).unwrap_err().kind(), ErrorKind::InvalidInput);
        let mut two = [0; 2];
        file.read_exact(&mut two).unwrap();
        assert_eq!(&two, b"67");

        assert_eq!(file.write_at(b"ab", 1).unwrap(), 2);
        file.read_exact_at(&mut two, 0).unwrap();
        assert_eq!(&two, b"0a");
        assert_eq!(file.stream_position().unwrap(), 8, "`_at` leaves the position alone");
        let beyond = file.read_exact_at(&mut two, 9).unwrap_err();
        assert_eq!(beyond.kind(), ErrorKind::UnexpectedEof);
        file.rewind().unwrap();
        assert_eq!(file.read(&mut two).unwrap(), 2);
        assert_eq!(&two, b"0a");
    });
}

#[test]
fn the_ways_to_open() {
    everywhere(|| {
        let folder = Folder::new();
        let path = folder.join("a");
        let kind = |options: &OpenOptions| options.open(&path).map(drop).map_err(|e| e.kind());

        assert_eq!(kind(OpenOptions::new().read(true)), Err(ErrorKind::NotFound));
        assert_eq!(kind(OpenOptions::new().create(true)), Err(ErrorKind::InvalidInput));
        assert_eq!(kind(&OpenOptions::new()), Err(ErrorKind::InvalidInput));
        assert_eq!(kind(OpenOptions::new().write(true).create(true).mode(0o600)), Ok(()));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(
            kind(OpenOptions::new().write(true).create_new(true)),
            Err(ErrorKind::AlreadyExists)
        );
        assert_eq!(File::create_new(&path).unwrap_err().kind(), ErrorKind::AlreadyExists);

        fs::write(&path, "abc").unwrap();
        let mut more = OpenOptions::new().append(true).open(&path).unwrap();
        more.seek(SeekFrom::Start(0)).unwrap();
        more.write_all(b"def").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"abcdef", "appending has its own position");
        assert_eq!(kind(OpenOptions::new().write(true).truncate(true)), Ok(()));
        assert_eq!(fs::read(&path).unwrap(), b"");

        let folder_flag = OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).clone();
        assert_eq!(kind(&folder_flag), Err(ErrorKind::NotADirectory));
        assert!(folder_flag.open(&folder.0).unwrap().metadata().unwrap().is_dir());

        let mut unreadable = OpenOptions::new().write(true).open(&path).unwrap();
        assert_eq!(unreadable.read(&mut [0]).unwrap_err().raw_os_error(), Some(libc::EBADF));
        assert_eq!(File::open("a\0b").unwrap_err().kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn length_times_and_permissions() {
    everywhere(|| {
        let folder = Folder::new();
        let path = folder.join("a");
        let file = File::create(&path).unwrap();
        file.set_len(1000).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 1000);
        file.set_len(10).unwrap();
        assert_eq!(fs::read(&path).unwrap(), [0; 10]);
        file.sync_data().unwrap();
        file.sync_all().unwrap();

        let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let before = then - Duration::from_secs(60);
        file.set_times(fs::FileTimes::new().set_accessed(before).set_modified(before)).unwrap();
        assert_eq!(file.metadata().unwrap().accessed().unwrap(), before);
        file.set_modified(then).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), then);
        assert_eq!(fs::metadata(&path).unwrap().mtime(), 1_000_000_000);

        file.set_permissions(fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o640);
        let mut permissions = file.metadata().unwrap().permissions();
        permissions.set_readonly(true);
        fs::set_permissions(&path, permissions).unwrap();
        assert!(fs::metadata(&path).unwrap().permissions().readonly());
    });
}

#[test]
fn folders_and_what_is_in_them() {
    everywhere(|| {
        let folder = Folder::new();
        let deep = folder.join("x/y/z");
        assert_eq!(fs::create_dir(&deep).unwrap_err().kind(), ErrorKind::NotFound);
        fs::create_dir_all(&deep).unwrap();
        fs::create_dir_all(&deep).unwrap();
        assert_eq!(fs::create_dir(&deep).unwrap_err().kind(), ErrorKind::AlreadyExists);
        DirBuilder::new().mode(0o711).create(folder.join("m")).unwrap();
        assert_eq!(fs::metadata(folder.join("m")).unwrap().mode() & 0o777, 0o711);

        for name in ["x/b", "x/a", "x/c"] {
            fs::write(folder.join(name), name).unwrap();
        }
        let listing = fs::read_dir(folder.join("x")).unwrap();
        assert_eq!(format!("{listing:?}"), format!("ReadDir({:?})", folder.join("x")));
        let mut names = Vec::new();
        for entry in listing {
            let entry = entry.unwrap();
            assert_eq!(entry.path(), folder.join("x").join(entry.file_name()));
            assert_eq!(format!("{entry:?}"), format!("DirEntry({:?})", entry.path()));
            assert_eq!(entry.ino(), entry.metadata().unwrap().ino());
            assert_eq!(entry.file_type().unwrap().is_dir(), entry.file_name() == "y");
            names.push(entry.file_name());
        }
        names.sort();
        assert_eq!(names, ["a", "b", "c", "y"]);

        let full = fs::remove_dir(folder.join("x")).unwrap_err();
        assert_eq!(full.kind(), ErrorKind::DirectoryNotEmpty);
        symlink(folder.join("m"), folder.join("x/link")).unwrap();
        fs::remove_dir_all(folder.join("x")).unwrap();
        assert!(!fs::exists(folder.join("x")).unwrap());
        assert!(fs::exists(folder.join("m")).unwrap(), "links are not followed");
        fs::remove_dir(folder.join("m")).unwrap();
        assert_eq!(fs::read_dir(folder.join("m")).unwrap_err().kind(), ErrorKind::NotFound);
    });
}

#[test]
fn names_and_links() {
    everywhere(|| {
        let folder = Folder::new();
        let (a, b) = (folder.join("a"), folder.join("b"));
        fs::write(&a, "text").unwrap();
        fs::rename(&a, &b).unwrap();
        assert_eq!(fs::metadata(&a).unwrap_err().kind(), ErrorKind::NotFound);

        fs::hard_link(&b, &a).unwrap();
        assert_eq!(fs::metadata(&a).unwrap().ino(), fs::metadata(&b).unwrap().ino());
        fs::remove_file(&b).unwrap();
        assert_eq!(fs::read(&a).unwrap(), b"text");

        symlink("a", &b).unwrap();
        assert_eq!(fs::read_link(&b).unwrap(), Path::new("a"));
        assert!(fs::symlink_metadata(&b).unwrap().is_symlink());
        assert!(fs::metadata(&b).unwrap().is_file());
        assert_eq!(fs::canonicalize(&b).unwrap(), fs::canonicalize(&a).unwrap());
        assert_eq!(fs::read_link(&a).unwrap_err().kind(), ErrorKind::InvalidInput);

        fs::set_permissions(&a, fs::Permissions::from_mode(0o604)).unwrap();
        assert_eq!(fs::copy(&a, folder.join("c")).unwrap(), 4);
        assert_eq!(fs::read(folder.join("c")).unwrap(), b"text");
        assert_eq!(fs::metadata(folder.join("c")).unwrap().mode() & 0o777, 0o604);
        assert_eq!(fs::remove_file(folder.join("d")).unwrap_err().kind(), ErrorKind::NotFound);
    });
}

#[test]
fn whoever_waits_for_a_lock_stops_nobody() {
    watched(|| {
        for procs in [1, 4] {
            let folder = Folder::new();
            let path = folder.join("lock");
            runtime(procs).run(|| {
                let (held, other) = (File::create(&path).unwrap(), File::open(&path).unwrap());
                held.lock().unwrap();
                assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
                assert!(matches!(other.try_lock_shared(), Err(TryLockError::WouldBlock)));
                heist::thread::scope(|scope| {
                    let waits = scope.spawn(|| {
                        other.lock_shared().unwrap();
                        other.unlock().unwrap();
                    });
                    // On one P this goes on only since the one who waits has none.
                    for _ in 0..100 {
                        heist::thread::sleep(Duration::from_micros(100));
                    }
                    assert!(!waits.is_finished());
                    held.unlock().unwrap();
                    waits.join().unwrap();
                });
                other.try_lock_shared().unwrap();
                held.try_lock_shared().unwrap();
            });
        }
    });
}

#[test]
fn whoever_waits_for_a_fifo_stops_nobody() {
    watched(|| {
        let folder = Folder::new();
        let path = folder.join("fifo");
        let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a string that ends with zero.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        runtime(1).run(|| {
            heist::thread::scope(|scope| {
                let reader = scope.spawn(|| fs::read_to_string(&path).unwrap());
                heist::thread::yield_now();
                let mut writer = OpenOptions::new().write(true).open(&path).unwrap();
                writer.write_all(b"through").unwrap();
                drop(writer);
                assert_eq!(reader.join().unwrap(), "through");
            });
        });
    });
}

#[test]
fn clones_share_their_position() {
    everywhere(|| {
        let folder = Folder::new();
        fs::write(folder.join("a"), "abcdef").unwrap();
        let one = File::open(folder.join("a")).unwrap();
        let two = one.try_clone().unwrap();
        let mut buf = [0; 2];
        for (mut file, text) in [(&one, b"ab"), (&two, b"cd"), (&one, b"ef")] {
            file.read_exact(&mut buf).unwrap();
            assert_eq!(&buf, text);
        }
    });
}

#[test]
fn descriptors_go_in_and_out() {
    everywhere(|| {
        let folder = Folder::new();
        let file = File::create(folder.join("a")).unwrap();
        let number = file.as_raw_fd();
        assert_eq!(file.as_fd().as_raw_fd(), number);
        let from_std = std::fs::File::from(file);
        assert_eq!(from_std.as_raw_fd(), number);
        let text = format!("{from_std:?}");
        let file = File::from(from_std);
        assert_eq!(format!("{file:?}"), text, "Debug is std's");
        let owned = OwnedFd::from(file);
        let number = File::from(owned).into_raw_fd();
        // SAFETY: it was given away by the line above.
        let mut file = unsafe { File::from_raw_fd(number) };
        file.write_all(b"still open").unwrap();
        drop(file);
        assert_eq!(fs::read(folder.join("a")).unwrap(), b"still open");
    });
}

#[test]
fn a_thousand_goroutines_and_their_files() {
    if let Some(output) = in_a_process() {
        assert!(output.status.success(), "{}", stderr(&output));
        return;
    }
    watched(|| {
        let folder = Folder::new();
        runtime(4).run(|| {
            let before = descriptors();
            heist::thread::scope(|scope| {
                for i in 0..1000 {
                    let path = folder.join(format!("{i}"));
                    scope.spawn(move || {
                        let text = format!("{i}").repeat(100);
                        fs::write(&path, &text).unwrap();
                        assert_eq!(fs::read_to_string(&path).unwrap(), text);
                        assert_eq!(
                            File::open(&path).unwrap().metadata().unwrap().len() as usize,
                            { text.len() }
                        );
                        fs::remove_file(&path).unwrap();
                    });
                }
            });
            until(|| heist::runtime::num_goroutines() == 1);
            assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 0);
            assert_eq!(descriptors(), before, "none is left");
        });
    });
}
