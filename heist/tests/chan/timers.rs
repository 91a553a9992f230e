//! Channels that the clock sends to.

use super::*;

#[test]
fn one_message_when_the_time_has_come() {
    everywhere(|| {
        let begin = Instant::now();
        let r = chan::after(A_WHILE);
        assert_eq!((r.try_recv(), r.len(), r.capacity()), (Err(TryRecvError::Empty), 0, Some(1)));
        let moment = r.recv().unwrap();
        assert!(moment >= begin + A_WHILE && Instant::now() >= moment);
        assert_eq!(r.try_recv(), Err(TryRecvError::Empty));
        assert_eq!(r.recv_timeout(Duration::from_millis(1)), Err(RecvTimeoutError::Timeout));
        let moment = Instant::now();
        assert_eq!(chan::at(moment).recv(), Ok(moment));
        assert_eq!(chan::at(moment).try_recv(), Ok(moment));
    });
}

#[test]
fn clones_share_the_message() {
    everywhere(|| {
        let r = chan::after(A_WHILE);
        let receivers: Vec<_> = (0..4)
            .map(|_| {
                let r = r.clone();
                go(move || r.recv_timeout(3 * A_WHILE).is_ok())
            })
            .collect();
        let got = receivers.into_iter().filter(|_| true).map(|r| r.join().unwrap());
        assert_eq!(got.filter(|got| *got).count(), 1);
    });
}

#[test]
fn ticks_do_not_pile_up() {
    everywhere(|| {
        let begin = Instant::now();
        let r = chan::tick(A_WHILE);
        thread::sleep(3 * A_WHILE);
        assert!(r.try_recv().is_ok());
        assert_eq!(r.try_recv(), Err(TryRecvError::Empty), "one at most has waited");
        r.recv().unwrap();
        r.clone().recv().unwrap();
        assert!(begin.elapsed() >= 5 * A_WHILE);
    });
}

#[test]
fn timeouts_before_the_message() {
    everywhere(|| {
        for r in [chan::after(CENTURIES), chan::tick(CENTURIES), chan::never()] {
            assert_eq!(r.recv_timeout(Duration::from_millis(1)), Err(RecvTimeoutError::Timeout));
            assert_eq!(r.recv_deadline(Instant::now()), Err(RecvTimeoutError::Timeout));
            assert!(r.is_empty());
        }
    });
}

#[test]
fn in_a_select() {
    everywhere(|| {
        let begin = Instant::now();
        let (_s, r) = unbounded::<i32>();
        let (ticks, late) = (chan::tick(Duration::from_millis(5)), chan::after(CENTURIES));
        for _ in 0..3 {
            select! {
                recv(ticks) -> moment => assert!(moment.unwrap() >= begin),
                recv(late) -> _ => unreachable!(),
                recv(r) -> _ => unreachable!(),
            }
        }
        assert!(begin.elapsed() >= Duration::from_millis(15));
        let begin = Instant::now();
        select! {
            recv(chan::after(A_WHILE)) -> _ => {}
            recv(late) -> _ => unreachable!(),
            recv(r) -> _ => unreachable!(),
        }
        assert!(begin.elapsed() >= A_WHILE);
    });
}
