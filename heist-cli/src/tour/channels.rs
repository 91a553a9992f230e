//! Many to many through channels, and a select over them.

use super::{Finding, Source, each, grouped, runtime};
use heist::chan;
use std::time::Instant;

const PRODUCERS: u64 = 8;
const MESSAGES: u64 = 50_000;

pub(super) fn visit() -> Finding {
    let procs = heist::thread::available_parallelism().map_or(1, usize::from);
    let runtime = runtime(procs);
    let total = PRODUCERS * MESSAGES;
    let start = Instant::now();
    let once = runtime.run(many_to_many);
    let many = start.elapsed();
    let start = Instant::now();
    let chosen = runtime.run(select);
    let selecting = start.elapsed();
    Finding {
        claim: format!("{} messages, each received exactly once, by select too", grouped(total)),
        holds: once && chosen == 2 * MESSAGES,
        measured: vec![
            format!("{PRODUCERS} to {PRODUCERS} in {} a message", each(many, total)),
            format!("select  in {} a message, over two channels", each(selecting, 2 * MESSAGES)),
        ],
        source: Source {
            file: "heist/src/chan/protocol/state.rs",
            text: include_str!("../../../heist/src/chan/protocol/state.rs"),
            line: "pub(crate) fn offer",
        },
    }
}

/// Whether each number arrives once.
fn many_to_many() -> bool {
    let (sender, receiver) = chan::bounded(128);
    for producer in 0..PRODUCERS {
        let sender = sender.clone();
        drop(heist::go(move || {
            for i in 0..MESSAGES {
                if sender.send(producer * MESSAGES + i).is_err() {
                    return;
                }
            }
        }));
    }
    drop(sender);
    let consumers: Vec<_> = (0..PRODUCERS)
        .map(|_| {
            let receiver = receiver.clone();
            heist::go(move || receiver.iter().collect::<Vec<u64>>())
        })
        .collect();
    let mut all: Vec<u64> =
        consumers.into_iter().flat_map(|c| c.join().unwrap_or_default()).collect();
    all.sort_unstable();
    all.into_iter().eq(0..PRODUCERS * MESSAGES)
}

/// How many messages a select over two channels receives.
fn select() -> u64 {
    let (left, right) = (chan::bounded(16), chan::bounded(16));
    for sender in [left.0, right.0] {
        drop(heist::go(move || (0..MESSAGES).all(|i| sender.send(i).is_ok())));
    }
    let mut open = [left.1, right.1];
    let mut received = 0;
    let mut ended = 0;
    while ended < 2 {
        let (which, message) = chan::select! {
            recv(open[0]) -> message => (0, message),
            recv(open[1]) -> message => (1, message),
        };
        match message {
            Ok(_) => received += 1,
            Err(_) => {
                ended += 1;
                open[which] = chan::never();
            }
        }
    }
    received
}
