//! Waiting at several channels at once.

mod engine;
mod landing;
mod operation;
mod selected;

pub use selected::{Completion, SelectedOperation};

use super::channel::Site;
use super::error::{ReadyTimeoutError, SelectTimeoutError, TryReadyError, TrySelectError};
use super::receiver::Receiver;
use super::sender::Sender;
use super::until::Until;
use crate::sched::waiter::Waiter;
use engine::{Case, Chosen};
use landing::Landing;
use std::fmt;
use std::panic::Location;
use std::time::{Duration, Instant};

/// What the macros expand to. Not part of the API.
#[doc(hidden)]
pub mod internal {
    pub use super::engine::{Case, Chosen};
    pub use super::landing::Landing;
    pub use super::{Completion, select, select_timeout, try_select};
}

/// Waits for whichever of several operations is ready first, and does it. For
/// lists of operations that are known only at run time; otherwise see
/// [`select!`](super::select).
///
/// An operation is ready when it needs no waiting, also if it will fail because
/// the other side of its channel is gone. Of several that are ready a random one
/// is chosen, or, with [`new_biased`](Self::new_biased), the first.
///
/// There are two ways to use it. [`select`](Self::select) and its kin choose an
/// operation, which must then be completed. [`ready`](Self::ready) and its kin
/// only say which operation is ready; someone else may be faster to do it.
///
/// ```
/// use heist::chan::{self, Select};
///
/// let (s1, r1) = chan::unbounded();
/// let (s2, r2) = chan::unbounded();
/// s2.send(10).unwrap();
/// # drop(s1);
///
/// let receivers = [r1, r2];
/// let mut select = Select::new();
/// for r in &receivers {
///     select.recv(r);
/// }
/// let operation = select.select();
/// let which = operation.index();
/// let received: Result<i32, _> = operation.recv(&receivers[which]);
/// assert_eq!(received.is_ok(), which == 1);
/// ```
#[derive(Clone)]
pub struct Select<'a> {
    cases: Vec<Case<'a>>,
    next_index: usize,
    biased: bool,
    /// Who has added all cases: messages need not be `Send`, a select is.
    maker: Option<Waiter>,
}

impl<'a> Select<'a> {
    /// Without operations.
    ///
    /// ```
    /// let select = heist::chan::Select::new();
    /// # drop(select);
    /// ```
    pub fn new() -> Self {
        Select { cases: Vec::with_capacity(4), next_index: 0, biased: false, maker: None }
    }

    /// Without operations; of several that are ready, the one that was added
    /// first is chosen.
    ///
    /// ```
    /// use heist::chan::{self, Select};
    ///
    /// let (s1, r1) = chan::unbounded();
    /// let (s2, r2) = chan::unbounded();
    /// s1.send(1).unwrap();
    /// s2.send(2).unwrap();
    /// let mut select = Select::new_biased();
    /// select.recv(&r2);
    /// select.recv(&r1);
    /// assert_eq!(select.ready(), 0);
    /// ```
    pub fn new_biased() -> Self {
        Select { biased: true, ..Select::new() }
    }

    /// Adds a send. Returns its index: they count from zero.
    ///
    /// ```
    /// use heist::chan::{self, Select};
    ///
    /// let (s, _r) = chan::unbounded::<i32>();
    /// let mut select = Select::new();
    /// assert_eq!(select.send(&s), 0);
    /// assert_eq!(select.send(&s), 1);
    /// ```
    pub fn send<T>(&mut self, s: &'a Sender<T>) -> usize {
        self.add(Case::send(s, self.next_index))
    }

    /// Adds a receive. Returns its index: they count from zero.
    ///
    /// ```
    /// use heist::chan::{self, Select};
    ///
    /// let (_s, r) = chan::unbounded::<i32>();
    /// let mut select = Select::new();
    /// assert_eq!(select.recv(&r), 0);
    /// ```
    pub fn recv<T>(&mut self, r: &'a Receiver<T>) -> usize {
        self.add(Case::recv(r, self.next_index))
    }

    fn add(&mut self, case: Case<'a>) -> usize {
        let me = Some(Waiter::current());
        self.maker = me.filter(|_| self.cases.is_empty() || self.maker == me);
        self.cases.push(case);
        self.next_index += 1;
        case.index()
    }

    /// Removes an operation. The others keep their indices.
    ///
    /// ```
    /// use heist::chan::{self, Select};
    ///
    /// let (_s, r1) = chan::unbounded::<i32>();
    /// let (s, r2) = chan::unbounded::<i32>();
    /// drop(s);
    /// let mut select = Select::new();
    /// let first = select.recv(&r1);
    /// let second = select.recv(&r2);
    /// select.remove(first);
    /// assert_eq!(select.ready(), second);
    /// ```
    ///
    /// # Panics
    ///
    /// If there is no operation with this index.
    pub fn remove(&mut self, index: usize) {
        assert!(index < self.next_index, "index out of bounds; {index} >= {}", self.next_index,);
        match self.cases.iter().position(|case| case.index() == index) {
            // Order matters to a biased one.
            Some(at) => drop(self.cases.remove(at)),
            None => panic!("no operation with this index"),
        }
    }

    /// Chooses an operation that is ready.
    ///
    /// # Errors
    ///
    /// If none is.
    ///
    /// ```
    /// use heist::chan::{self, Select};
    ///
    /// let (s, r) = chan::unbounded();
    /// let mut select = Select::new();
    /// select.recv(&r);
    /// assert!(select.try_select().is_err());
    /// s.send(3).unwrap();
    /// assert_eq!(select.try_select().unwrap().recv(&r), Ok(3));
    /// ```
    #[track_caller]
    pub fn try_select(&mut self) -> Result<SelectedOperation<'a>, TrySelectError> {
        self.run(Until::Now, Location::caller()).ok_or(TrySelectError)
    }

    /// Waits for an operation to be ready, and chooses it.
    ///
    /// ```
    /// use heist::chan::{self, Select};
    ///
    /// let (s, r) = chan::bounded(0);
    /// heist::go(move || s.send(3).unwrap());
    /// let mut select = Select::new();
    /// select.recv(&r);
    /// assert_eq!(select.select().recv(&r), Ok(3));
    /// ```
    ///
    /// # Panics
    ///
    /// If there are no operations.
    #[track_caller]
    pub fn select(&mut self) -> SelectedOperation<'a> {
        self.assert_some();
        match self.run(Until::Forever, Location::caller()) {
            Some(selected) => selected,
            None => unreachable!("forever is not over"),
        }
    }

    /// Waits for an operation to be ready, at most so long, and chooses it.
    ///
    /// # Errors
    ///
    /// If none was ready in time.
    ///
    /// ```
    /// use heist::chan::{self, Select};
    /// use std::time::Duration;
    ///
    /// let (_s, r) = chan::unbounded::<i32>();
    /// let mut select = Select::new();
    /// select.recv(&r);
    /// assert!(select.select_timeout(Duration::from_millis(1)).is_err());
    /// ```
    #[track_caller]
    pub fn select_timeout(
        &mut self,
        timeout: Duration,
    ) -> Result<SelectedOperation<'a>, SelectTimeoutError> {
        self.run(Until::after(timeout), Location::caller()).ok_or(SelectTimeoutError)
    }

    /// Waits for an operation to be ready, at most until then, and chooses it.
    ///
    /// # Errors
    ///
    /// If none was ready in time.
    ///
    /// ```
    /// use heist::chan::{self, Select};
    /// use std::time::Instant;
    ///
    /// let (_s, r) = chan::unbounded::<i32>();
    /// let mut select = Select::new();
    /// select.recv(&r);
    /// assert!(select.select_deadline(Instant::now()).is_err());
    /// ```
    #[track_caller]
    pub fn select_deadline(
        &mut self,
        deadline: Instant,
    ) -> Result<SelectedOperation<'a>, SelectTimeoutError> {
        self.run(Until::Moment(deadline), Location::caller()).ok_or(SelectTimeoutError)
    }

    fn run(&mut self, until: Until, site: Site) -> Option<SelectedOperation<'a>> {
        let mut landing = Landing::new();
        let chosen = engine::select(&mut self.cases, until, self.biased, &mut landing, site)?;
        let at_home = self.maker == Some(Waiter::current());
        Some(SelectedOperation { chosen: Some(chosen), landing, at_home })
    }

    fn assert_some(&self) {
        assert!(!self.cases.is_empty(), "no operations have been added to `Select`");
    }

    /// The index of an operation that is ready.
    ///
    /// # Errors
    ///
    /// If none is.
    ///
    /// ```
    /// use heist::chan::{self, Select};
    ///
    /// let (s, r) = chan::unbounded::<i32>();
    /// let mut select = Select::new();
    /// select.recv(&r);
    /// assert!(select.try_ready().is_err());
    /// drop(s);
    /// assert_eq!(select.try_ready(), Ok(0));
    /// ```
    #[track_caller]
    pub fn try_ready(&mut self) -> Result<usize, TryReadyError> {
        self.run_ready(Until::Now, Location::caller()).ok_or(TryReadyError)
    }

    /// Waits for an operation to be ready, and returns its index. When the caller
    /// comes to do it, somebody else may have been faster.
    ///
    /// ```
    /// use heist::chan::{self, Select};
    ///
    /// let (s, r) = chan::unbounded();
    /// heist::go(move || s.send(3).unwrap());
    /// let mut select = Select::new();
    /// select.recv(&r);
    /// assert_eq!(select.ready(), 0);
    /// assert_eq!(r.try_recv(), Ok(3));
    /// ```
    ///
    /// # Panics
    ///
    /// If there are no operations.
    #[track_caller]
    pub fn ready(&mut self) -> usize {
        self.assert_some();
        match self.run_ready(Until::Forever, Location::caller()) {
            Some(index) => index,
            None => unreachable!("forever is not over"),
        }
    }

    /// As [`ready`](Self::ready), and waits at most so long.
    ///
    /// # Errors
    ///
    /// If none was ready in time.
    ///
    /// ```
    /// use heist::chan::{self, Select};
    /// use std::time::Duration;
    ///
    /// let (_s, r) = chan::unbounded::<i32>();
    /// let mut select = Select::new();
    /// select.recv(&r);
    /// assert!(select.ready_timeout(Duration::from_millis(1)).is_err());
    /// ```
    #[track_caller]
    pub fn ready_timeout(&mut self, timeout: Duration) -> Result<usize, ReadyTimeoutError> {
        self.run_ready(Until::after(timeout), Location::caller()).ok_or(ReadyTimeoutError)
    }

    /// As [`ready`](Self::ready), and waits at most until then.
    ///
    /// # Errors
    ///
    /// If none was ready in time.
    ///
    /// ```
    /// use heist::chan::{self, Select};
    /// use std::time::Instant;
    ///
    /// let (_s, r) = chan::unbounded::<i32>();
    /// let mut select = Select::new();
    /// select.recv(&r);
    /// assert!(select.ready_deadline(Instant::now()).is_err());
    /// ```
    #[track_caller]
    pub fn ready_deadline(&mut self, deadline: Instant) -> Result<usize, ReadyTimeoutError> {
        self.run_ready(Until::Moment(deadline), Location::caller()).ok_or(ReadyTimeoutError)
    }

    fn run_ready(&mut self, until: Until, site: Site) -> Option<usize> {
        engine::ready(&mut self.cases, until, self.biased, site)
    }
}

impl Default for Select<'_> {
    fn default() -> Self {
        Select::new()
    }
}

impl fmt::Debug for Select<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("Select { .. }")
    }
}

#[doc(hidden)]
#[inline]
#[track_caller]
pub fn select<'a>(
    cases: &mut [Case<'a>],
    biased: bool,
    landing: &mut Landing,
) -> Option<Chosen<'a>> {
    assert!(!cases.is_empty(), "no operations have been added to `Select`");
    engine::select(cases, Until::Forever, biased, landing, Location::caller())
}

#[doc(hidden)]
#[inline]
#[track_caller]
pub fn try_select<'a>(
    cases: &mut [Case<'a>],
    biased: bool,
    landing: &mut Landing,
) -> Option<Chosen<'a>> {
    engine::select(cases, Until::Now, biased, landing, Location::caller())
}

#[doc(hidden)]
#[inline]
#[track_caller]
pub fn select_timeout<'a>(
    cases: &mut [Case<'a>],
    timeout: Duration,
    biased: bool,
    landing: &mut Landing,
) -> Option<Chosen<'a>> {
    engine::select(cases, Until::after(timeout), biased, landing, Location::caller())
}
