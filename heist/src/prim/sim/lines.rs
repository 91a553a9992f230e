//! Where cache lines are.
//!
//! A line remembers who has a copy. A read is cheap for those and fetches a copy
//! for others; a write takes the line away from everybody else. A line is on its
//! way to one core at a time, so that a word which many cores write costs each
//! of them its place in a queue: that is how a hot word limits a machine.
//!
//! And which pages are there: the first use of one is a page fault. What is known
//! of are atomics and the tops of stacks.

use super::cost::Costs;
use super::topology::{Distance, Topology};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

const LINE: usize = 64;
const PAGE: usize = 4096;
const WORDS: usize = super::topology::MOST / 64;

/// The state of a line.
struct Line {
    /// Who has a copy, a bit for each core.
    copies: [u64; WORDS],
    /// Who wrote it last.
    writer: u16,
    /// Until when it is on its way to somebody.
    busy: u64,
}

/// All lines that were ever touched.
pub(super) struct Lines {
    lines: HashMap<usize, Line, BuildHasherDefault<ByAddress>>,
    /// Pages that were touched, and not given back since.
    pages: HashSet<usize, BuildHasherDefault<ByAddress>>,
}

/// What an access cost.
pub(super) struct Access {
    pub(super) cost: u64,
    /// Where the line came from.
    pub(super) from: Distance,
    /// Nobody has used the line before.
    pub(super) fresh: bool,
}

impl Lines {
    pub(super) fn new() -> Self {
        Lines { lines: HashMap::default(), pages: HashSet::default() }
    }

    /// Memory is used. Whether that is the first use of its page.
    pub(super) fn touch(&mut self, address: usize) -> bool {
        self.pages.insert(address / PAGE)
    }

    /// The pages of a range are given back.
    pub(super) fn discard(&mut self, low: usize, size: usize) {
        let gone = low / PAGE..(low + size) / PAGE;
        self.pages.retain(|page| !gone.contains(page));
    }

    /// An access by `core` at `time`.
    pub(super) fn access(
        &mut self,
        (topology, costs): (&Topology, &Costs),
        core: usize,
        address: usize,
        write: bool,
        time: u64,
    ) -> Access {
        let (word, bit) = (core / 64, 1 << (core % 64));
        let mut fresh = false;
        let new = || {
            fresh = true;
            // Fresh memory, or a line that only its allocator had: the first to
            // use it finds it near.
            let mut copies = [0; WORDS];
            copies[word] = bit;
            Line { copies, writer: core as u16, busy: 0 }
        };
        let line = self.lines.entry(address / LINE).or_insert_with(new);
        let mine = line.copies[word] & bit != 0;
        let from = if !mine {
            topology.distance(core, line.writer as usize).max(Distance::Cache)
        } else if write && line.has_other_copies(word, bit) {
            // Its own copy is good, those of others must go.
            line.farthest(topology, core)
        } else {
            Distance::Own
        };
        if write {
            line.copies = [0; WORDS];
            line.writer = core as u16;
        }
        line.copies[word] |= bit;
        let transfer = match from {
            Distance::Own => return Access { cost: 0, from, fresh },
            Distance::Cache => costs.cache,
            Distance::Node => costs.node,
            Distance::Remote => costs.remote,
        };
        let waits = line.busy.saturating_sub(time);
        // Copies for readers can be made at the same time; a write owns it.
        if write {
            line.busy = time + waits + transfer;
        }
        Access { cost: waits + transfer, from, fresh }
    }
}

impl Line {
    fn has_other_copies(&self, word: usize, bit: u64) -> bool {
        self.copies.iter().enumerate().any(|(i, w)| if i == word { w & !bit } else { *w } != 0)
    }

    fn farthest(&self, topology: &Topology, core: usize) -> Distance {
        let [cache, node, _] = topology.around(core);
        let outside = |range: &std::ops::Range<usize>| {
            self.copies.iter().enumerate().any(|(i, word)| {
                let mut bits = *word;
                while bits != 0 {
                    let holder = i * 64 + bits.trailing_zeros() as usize;
                    if !range.contains(&holder) {
                        return true;
                    }
                    bits &= bits - 1;
                }
                false
            })
        };
        if !outside(&cache) {
            Distance::Cache
        } else if !outside(&node) {
            Distance::Node
        } else {
            Distance::Remote
        }
    }
}

/// Lines have good numbers already: one multiplication spreads them.
#[derive(Default)]
pub(super) struct ByAddress(u64);

impl Hasher for ByAddress {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_usize(usize::from(*byte));
        }
    }

    fn write_usize(&mut self, n: usize) {
        let mixed = (self.0 ^ n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}
