//! The global run queue: a list of goroutines in the order of their arrival.
//!
//! Intrusive, so that a million queued goroutines cost no memory beyond
//! themselves, and moved in whole chains, so that the lock around it is held
//! for a few stores however many goroutines come.

use crate::prim::atomic::{AtomicPtr, Ordering};
use crate::prim::fatal::fatal;
use std::ptr;

/// An item that can be in one list at a time.
pub(crate) trait Linked: Sized + 'static {
    /// The item behind this one.
    fn link(&self) -> &AtomicPtr<Self>;

    /// The item that a link names.
    fn from_link(link: *mut Self) -> Option<&'static Self>;
}

/// A chain of items, first in, first out.
pub(crate) struct Chain<T: 'static> {
    head: Option<&'static T>,
    tail: Option<&'static T>,
    len: usize,
}

impl<T: Linked> Chain<T> {
    pub(crate) const fn new() -> Self {
        Chain { head: None, tail: None, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn push(&mut self, item: &'static T) {
        // Relaxed throughout: who pushes owns the item, and a chain changes
        // hands under a lock.
        item.link().store(ptr::null_mut(), Ordering::Relaxed);
        match self.tail.replace(item) {
            Some(tail) => tail.link().store(ptr::from_ref(item).cast_mut(), Ordering::Relaxed),
            None => self.head = Some(item),
        }
        self.len += 1;
    }

    pub(crate) fn pop(&mut self) -> Option<&'static T> {
        let item = self.head?;
        self.head = T::from_link(item.link().load(Ordering::Relaxed));
        if self.head.is_none() {
            self.tail = None;
        }
        self.len -= 1;
        if (self.len == 0) != self.head.is_none() {
            fatal!("global runq empty with non-zero runqsize ({})", self.len);
        }
        Some(item)
    }

    /// Moves all of `other` behind what is here.
    pub(crate) fn append(&mut self, other: Chain<T>) {
        let Some(head) = other.head else { return };
        match self.tail {
            Some(tail) => tail.link().store(ptr::from_ref(head).cast_mut(), Ordering::Relaxed),
            None => self.head = Some(head),
        }
        self.tail = other.tail;
        self.len += other.len;
    }
}

impl<T: Linked> FromIterator<&'static T> for Chain<T> {
    fn from_iter<I: IntoIterator<Item = &'static T>>(items: I) -> Self {
        let mut chain = Chain::new();
        items.into_iter().for_each(|item| chain.push(item));
        chain
    }
}

/// How many goroutines a P takes from a global queue of `size`: its share of
/// them and one more, but no more than half a ring (`globrunqget`, seed 002).
pub(crate) fn batch_size(size: usize, procs: usize, room: usize) -> usize {
    (size / procs + 1).min(size).min(room)
}

#[cfg(test)]
pub(crate) mod node {
    use super::*;

    pub(crate) struct Node {
        pub(crate) value: u32,
        link: AtomicPtr<Node>,
    }

    pub(crate) fn node(value: u32) -> &'static Node {
        Box::leak(Box::new(Node { value, link: AtomicPtr::new(ptr::null_mut()) }))
    }

    impl Linked for Node {
        fn link(&self) -> &AtomicPtr<Self> {
            &self.link
        }

        #[allow(unsafe_code)]
        fn from_link(link: *mut Self) -> Option<&'static Self> {
            // SAFETY: only leaked nodes are linked.
            unsafe { link.as_ref() }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::node::{Node, node};
    use super::*;

    fn drain(chain: &mut Chain<Node>) -> Vec<u32> {
        std::iter::from_fn(|| chain.pop()).map(|n| n.value).collect()
    }

    #[test]
    fn first_in_first_out_across_appends() {
        let mut queue = Chain::new();
        queue.push(node(0));
        queue.append((1..4).map(node).collect());
        queue.append(Chain::new());
        queue.push(node(4));
        assert_eq!(queue.len(), 5);
        assert_eq!(drain(&mut queue), [0, 1, 2, 3, 4]);
        assert_eq!(queue.len(), 0);
        queue.append((5..7).map(node).collect());
        assert_eq!(drain(&mut queue), [5, 6]);
    }

    #[test]
    fn a_batch_is_a_fair_share_and_at_most_half_a_ring() {
        assert_eq!(batch_size(0, 4, 128), 0);
        assert_eq!(batch_size(1, 4, 128), 1);
        assert_eq!(batch_size(10, 4, 128), 3);
        assert_eq!(batch_size(10, 1, 128), 10);
        assert_eq!(batch_size(100_000, 4, 128), 128);
        assert_eq!(batch_size(100_000, 4, 5), 5);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::node::{Node, node};
    use super::*;
    use loom::sync::{Arc, Mutex};

    /// Chains pushed from two threads against a batch taken by a third.
    #[test]
    fn submitters_against_a_taker() {
        loom::model(|| {
            let queue = Arc::new(Mutex::new(Chain::<Node>::new()));
            let submitters: Vec<_> = (0..2)
                .map(|t| {
                    let queue = queue.clone();
                    loom::thread::spawn(move || {
                        let chain = [node(2 * t), node(2 * t + 1)].into_iter().collect();
                        queue.lock().unwrap().append(chain);
                    })
                })
                .collect();
            let mut seen = Vec::new();
            {
                let mut queue = queue.lock().unwrap();
                for _ in 0..batch_size(queue.len(), 2, 2) {
                    seen.push(queue.pop().unwrap().value);
                }
            }
            submitters.into_iter().for_each(|t| t.join().unwrap());
            let mut queue = queue.lock().unwrap();
            seen.extend(std::iter::from_fn(|| queue.pop()).map(|n| n.value));
            for pair in [[0, 1], [2, 3]] {
                let at = |v| seen.iter().position(|s| *s == v).expect("none is lost");
                assert!(at(pair[0]) < at(pair[1]), "order within a chain");
            }
            assert_eq!(seen.len(), 4);
        });
    }
}
