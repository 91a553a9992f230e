//! Store buffers: total store order, as x86 has it.
//!
//! A store that is no read-modify-write waits in its core's buffer, first in,
//! first out; the core itself sees it, others do not yet. A read-modify-write, a
//! full fence and a system call empty the buffer. That is the one reordering of
//! x86 (a store is overtaken by a later load), and the one that the wake-up
//! protocols need their fences against.
//!
//! Only stores to memory that is never freed wait ([`keep`]): a store to
//! a stack frame that is gone by the time it arrives would corrupt the run. The
//! scheduler's Ps, Ms, Gs and itself are such memory.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// x86 cores have room for some dozens; few are needed to show a reordering.
const ROOM: usize = 8;

/// A store that others do not see yet.
#[derive(Clone, Copy, Debug)]
struct Pending {
    address: usize,
    bytes: usize,
    value: u64,
}

/// The stores of one core that are on their way.
#[derive(Debug, Default)]
pub(super) struct StoreBuffer {
    pending: Vec<Pending>,
}

thread_local! {
    /// Memory that is never freed.
    static KEPT: RefCell<Vec<Range<usize>>> = const { RefCell::new(Vec::new()) };
}

/// Says that memory will not be freed.
pub(crate) fn keep(start: usize, bytes: usize) {
    KEPT.with_borrow_mut(|kept| {
        kept.push(start..start + bytes);
        kept.sort_by_key(|range| range.start);
    });
}

pub(super) fn is_kept(address: usize) -> bool {
    KEPT.with_borrow(|kept| {
        let after = kept.partition_point(|range| range.start <= address);
        after > 0 && kept[after - 1].contains(&address)
    })
}

impl StoreBuffer {
    /// Adds a store. The oldest one leaves if there is no room.
    pub(super) fn push(&mut self, address: usize, bytes: usize, value: u64) {
        if self.pending.len() == ROOM {
            self.flush_one();
        }
        self.pending.push(Pending { address, bytes, value });
    }

    /// What the core itself sees at an address, if a store to it is pending.
    pub(super) fn find(&self, address: usize) -> Option<u64> {
        self.pending.iter().rev().find(|p| p.address == address).map(|p| p.value)
    }

    /// The oldest store becomes visible.
    pub(super) fn flush_one(&mut self) {
        if !self.pending.is_empty() {
            let p = self.pending.remove(0);
            // SAFETY: the address is that of an atomic of this size, in memory
            // that is never freed.
            unsafe {
                match p.bytes {
                    1 => AtomicU8::from_ptr(p.address as *mut u8)
                        .store(p.value as u8, Ordering::Relaxed),
                    2 => AtomicU16::from_ptr(p.address as *mut u16)
                        .store(p.value as u16, Ordering::Relaxed),
                    4 => AtomicU32::from_ptr(p.address as *mut u32)
                        .store(p.value as u32, Ordering::Relaxed),
                    _ => {
                        AtomicU64::from_ptr(p.address as *mut u64).store(p.value, Ordering::Relaxed)
                    }
                }
            }
        }
    }

    pub(super) fn flush(&mut self) {
        while !self.pending.is_empty() {
            self.flush_one();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }
}
