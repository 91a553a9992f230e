//! [`Context`]: when to stop, and what belongs to a request.

use crate::chan::{self, Receiver, Sender};
use crate::prim::clock;
use crate::prim::lock::{Lock, Rank};
use crate::sched::park;
use crate::thread;
use crate::time::Timer;
use std::any::Any;
use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

/// Go's `context.Context`: carries a cancellation, a deadline and values to all
/// who work on the same thing.
///
/// A context is made from another, its parent, and ends at the latest when that
/// does: when its [`CancelFunc`] is called or dropped, when its deadline has
/// come, or when its parent ends. Clones are the same context.
///
/// ```
/// use heist::chan;
/// use heist::sync::{Context, ContextError};
///
/// let (context, cancel) = Context::background().with_cancel();
/// let worker = heist::go({
///     let context = context.clone();
///     move || {
///         let (_keep, work) = chan::bounded::<u32>(0);
///         chan::select! {
///             recv(work) -> _ => None,
///             recv(context.done()) -> _ => context.err(),
///         }
///     }
/// });
/// cancel.cancel();
/// assert_eq!(worker.join().unwrap(), Some(ContextError::Canceled));
/// ```
#[derive(Clone)]
pub struct Context {
    handle: Arc<Handle>,
    values: Option<Arc<Value>>,
}

/// Why a [`Context`] has ended. The texts are Go's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContextError {
    /// It was cancelled.
    Canceled,
    /// Its deadline has passed.
    DeadlineExceeded,
}

impl fmt::Display for ContextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ContextError::Canceled => "context canceled",
            ContextError::DeadlineExceeded => "context deadline exceeded",
        })
    }
}

impl Error for ContextError {}

/// What a context was cancelled for.
type Cause = Arc<dyn Error + Send + Sync>;

/// One that can end by itself. Contexts that differ only in their values share it.
///
/// Who can end it has it: its parent, its timer, and the handle, which a [`CancelFunc`]
/// has. It knows the first and the last of them weakly. So it lives for as long as it can
/// end, whoever waits for that, and no longer.
struct Node {
    /// None of the background.
    parent: Option<Weak<Node>>,
    /// What its parent knows it by.
    number: u64,
    deadline: Option<Instant>,
    /// Disconnected when it ends; of the background, never.
    done: Receiver<()>,
    state: Lock<State>,
    handle: Weak<Handle>,
}

/// What contexts, and those who may end them, share.
struct Handle {
    node: Arc<Node>,
    /// Ends it when the deadline has come. For whoever ends it first.
    timer: OnceLock<Timer>,
}

impl Handle {
    fn new(make: impl FnOnce(Weak<Handle>) -> Node) -> Arc<Handle> {
        Arc::new_cyclic(|handle| Handle {
            node: Arc::new(make(handle.clone())),
            timer: OnceLock::new(),
        })
    }

    fn stop_timer(&self) {
        if let Some(timer) = self.timer.get() {
            timer.stop();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // If its end matters to somebody yet, its timer runs on by itself.
        if !self.node.matters() {
            self.stop_timer();
            self.node.leave();
        }
    }
}

#[derive(Default)]
struct State {
    ended: Option<(ContextError, Cause)>,
    /// Dropped when it ends.
    alive: Option<Sender<()>>,
    /// Those that end with it, and what is called then, by their numbers.
    children: HashMap<u64, Arc<Node>>,
    functions: HashMap<u64, Box<dyn FnOnce() + Send>>,
    last: u64,
}

impl State {
    fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

/// A value, and those of the contexts before.
struct Value {
    value: Box<dyn Any + Send + Sync>,
    next: Option<Arc<Value>>,
}

/// Of a long chain one after the other, not one inside of the other: stacks are short.
impl Drop for Value {
    fn drop(&mut self) {
        let mut next = self.next.take();
        while let Some(value) = next {
            next = Arc::into_inner(value).and_then(|mut value| value.next.take());
        }
    }
}

impl Context {
    /// The root of all others: it does not end and has no values.
    #[must_use]
    pub fn background() -> Context {
        static ROOT: OnceLock<Arc<Handle>> = OnceLock::new();
        let root = ROOT.get_or_init(|| {
            Handle::new(|handle| Node {
                parent: None,
                number: 0,
                deadline: None,
                done: chan::never(),
                state: Lock::new(Rank::Leaf, State::default()),
                handle,
            })
        });
        Context { handle: Arc::clone(root), values: None }
    }

    /// The same, where it is not clear yet which context is to be used, or where the caller
    /// cannot hand one down yet: Go's `context.TODO`, to be searched for.
    ///
    /// ```
    /// use heist::sync::Context;
    ///
    /// let context = Context::todo();
    /// assert!(context.err().is_none() && context.deadline().is_none());
    /// ```
    #[must_use]
    pub fn todo() -> Context {
        Context::background()
    }

    /// A context with the same values that does not end: what goes on when the request that
    /// it was begun for is over. It has no deadline either.
    ///
    /// ```
    /// use heist::sync::Context;
    ///
    /// struct User(&'static str);
    /// let (request, cancel) = Context::background().with_value(User("ada")).with_cancel();
    /// let audit = request.without_cancel();
    /// cancel.cancel();
    /// assert!(request.err().is_some() && audit.err().is_none());
    /// assert_eq!(audit.value::<User>().unwrap().0, "ada");
    /// ```
    #[must_use]
    pub fn without_cancel(&self) -> Context {
        Context { handle: Context::background().handle, values: self.values.clone() }
    }

    /// A context that ends when the function is called or dropped.
    pub fn with_cancel(&self) -> (Context, CancelFunc) {
        self.child(self.deadline())
    }

    /// A context that ends at the deadline, unless its function is called or
    /// dropped before. Of two deadlines the earlier counts.
    pub fn with_deadline(&self, deadline: Instant) -> (Context, CancelFunc) {
        self.ends_by(deadline, None)
    }

    /// As [`with_deadline`](Self::with_deadline), and if it ends by that deadline, then for
    /// this [`cause`](Self::cause). Of a cancellation, and of a deadline before this one, it
    /// is not the cause.
    ///
    /// ```
    /// use heist::sync::{Context, ContextError};
    /// use std::io::Error;
    /// use std::time::Instant;
    ///
    /// let now = Instant::now();
    /// let (context, _cancel) =
    ///     Context::background().with_deadline_cause(now, Error::other("the shop is closed"));
    /// assert_eq!(context.err(), Some(ContextError::DeadlineExceeded));
    /// assert_eq!(context.cause().unwrap().to_string(), "the shop is closed");
    /// ```
    pub fn with_deadline_cause(
        &self,
        deadline: Instant,
        cause: impl Error + Send + Sync + 'static,
    ) -> (Context, CancelFunc) {
        self.ends_by(deadline, Some(Arc::new(cause)))
    }

    /// As [`with_deadline`](Self::with_deadline), so long from now.
    ///
    /// ```
    /// use heist::sync::Context;
    /// use std::time::Duration;
    ///
    /// let (context, _cancel) = Context::background().with_timeout(Duration::from_millis(1));
    /// assert!(context.done().recv().is_err());
    /// assert_eq!(context.err().unwrap().to_string(), "context deadline exceeded");
    /// ```
    pub fn with_timeout(&self, timeout: Duration) -> (Context, CancelFunc) {
        match clock::instant().checked_add(timeout) {
            Some(deadline) => self.with_deadline(deadline),
            None => self.with_cancel(), // centuries from now
        }
    }

    /// As [`with_deadline_cause`](Self::with_deadline_cause), so long from now.
    ///
    /// ```
    /// use heist::sync::Context;
    /// use std::io::Error;
    /// use std::time::Duration;
    ///
    /// let (context, _cancel) = Context::background()
    ///     .with_timeout_cause(Duration::from_millis(1), Error::other("no answer from the disk"));
    /// assert!(context.done().recv().is_err());
    /// assert_eq!(context.cause().unwrap().to_string(), "no answer from the disk");
    /// ```
    pub fn with_timeout_cause(
        &self,
        timeout: Duration,
        cause: impl Error + Send + Sync + 'static,
    ) -> (Context, CancelFunc) {
        match clock::instant().checked_add(timeout) {
            Some(deadline) => self.with_deadline_cause(deadline, cause),
            None => self.with_cancel(), // as above
        }
    }

    /// A context with a value, which is known by its type: a type of one's own for
    /// each purpose, as Go advises for keys.
    ///
    /// ```
    /// use heist::sync::Context;
    ///
    /// struct User(String);
    /// let context = Context::background().with_value(User("ada".to_owned()));
    /// assert_eq!(context.value::<User>().unwrap().0, "ada");
    /// assert!(Context::background().value::<User>().is_none());
    /// ```
    #[must_use]
    pub fn with_value<T: Any + Send + Sync>(&self, value: T) -> Context {
        let value = Value { value: Box::new(value), next: self.values.clone() };
        Context { handle: Arc::clone(&self.handle), values: Some(Arc::new(value)) }
    }

    /// The last value of that type that it or a context before it was made with.
    #[must_use]
    pub fn value<T: Any + Send + Sync>(&self) -> Option<&T> {
        let mut values = self.values.as_ref();
        while let Some(value) = values {
            if let Some(found) = value.value.downcast_ref() {
                return Some(found);
            }
            values = value.next.as_ref();
        }
        None
    }

    /// A channel that is disconnected when the context ends: receiving from it
    /// waits for that, alone or in a select. Who has a clone of it need not keep the
    /// context.
    #[must_use]
    pub fn done(&self) -> &Receiver<()> {
        &self.handle.node.done
    }

    /// Why it has ended; `None` if it has not. Every now and then a look in vain lets other
    /// goroutines run.
    #[must_use]
    pub fn err(&self) -> Option<ContextError> {
        let error = self.ended();
        if error.is_none() {
            park::poll_point();
        }
        error
    }

    /// [`err`](Self::err) that lets nobody else run.
    fn ended(&self) -> Option<ContextError> {
        self.handle.node.state.lock().ended.as_ref().map(|(error, _)| *error)
    }

    /// What was given as the cause of its end, or of its parent's; without that,
    /// what [`err`](Self::err) says.
    #[must_use]
    pub fn cause(&self) -> Option<Arc<dyn Error + Send + Sync>> {
        self.handle.node.state.lock().ended.as_ref().map(|(_, cause)| Arc::clone(cause))
    }

    /// When it ends at the latest, if that is known.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.handle.node.deadline
    }

    /// Calls a function when the context ends, on a goroutine of its own; at once
    /// if it has.
    ///
    /// ```
    /// use heist::sync::{Context, mpsc};
    ///
    /// let (sender, receiver) = mpsc::channel();
    /// let (context, cancel) = Context::background().with_cancel();
    /// let stop = context.after_func(move || sender.send("ended").unwrap());
    /// cancel.cancel();
    /// assert_eq!(receiver.recv(), Ok("ended"));
    /// assert!(!stop.stop(), "too late");
    /// ```
    pub fn after_func<F: FnOnce() + Send + 'static>(&self, f: F) -> AfterFunc {
        let mut state = self.handle.node.state.lock();
        let number = state.next_number();
        if state.ended.is_some() {
            drop(state);
            drop(thread::spawn(f));
        } else {
            state.functions.insert(number, Box::new(f));
        }
        AfterFunc { handle: Arc::clone(&self.handle), number }
    }

    /// A child that ends with this context.
    fn child(&self, deadline: Option<Instant>) -> (Context, CancelFunc) {
        let parent = &self.handle.node;
        let (sender, done) = chan::bounded(0);
        let state = State { alive: Some(sender), ..State::default() };
        let handle = Handle::new(|handle| Node {
            parent: Some(Arc::downgrade(parent)),
            number: parent.state.lock().next_number(),
            deadline,
            done,
            state: Lock::new(Rank::Leaf, state),
            handle,
        });
        parent.adopt(&handle.node);
        let values = self.values.clone();
        (Context { handle: Arc::clone(&handle), values }, CancelFunc { handle, on_drop: true })
    }

    /// A child that ends at the deadline, too, and then for that cause.
    fn ends_by(&self, deadline: Instant, cause: Option<Cause>) -> (Context, CancelFunc) {
        if self.deadline().is_some_and(|earlier| earlier <= deadline) {
            return self.child(self.deadline());
        }
        let (context, cancel) = self.child(Some(deadline));
        if deadline <= clock::instant() {
            context.handle.node.end(ContextError::DeadlineExceeded, cause);
            return (context, cancel);
        }
        let node = Arc::clone(&context.handle.node);
        let timer = Timer::at(deadline, move || {
            node.end(ContextError::DeadlineExceeded, cause.clone());
        });
        let timer = context.handle.timer.get_or_init(|| timer);
        if context.ended().is_some() {
            timer.stop(); // the parent was faster
        }
        (context, cancel)
    }
}

impl Node {
    /// `child` ends with this one.
    fn adopt(&self, child: &Arc<Node>) {
        let mut state = self.state.lock();
        match state.ended.clone() {
            Some((error, cause)) => {
                drop(state);
                child.end(error, Some(cause));
            }
            // The background has no end, and need not know.
            None if self.parent.is_none() => {}
            None => {
                state.children.insert(child.number, Arc::clone(child));
            }
        }
    }

    /// Ends it and all below.
    fn end(&self, error: ContextError, cause: Option<Cause>) {
        let cause = cause.unwrap_or_else(|| Arc::new(error));
        let mut rest = Vec::new();
        self.end_alone(error, &cause, &mut rest);
        while let Some(node) = rest.pop() {
            node.end_alone(error, &cause, &mut rest);
        }
    }

    /// Ends it, and adds its children to those that are to end.
    fn end_alone(&self, error: ContextError, cause: &Cause, rest: &mut Vec<Arc<Node>>) {
        let mut state = self.state.lock();
        if state.ended.is_some() {
            return;
        }
        state.ended = Some((error, Arc::clone(cause)));
        let alive = state.alive.take();
        let children = std::mem::take(&mut state.children);
        let functions = std::mem::take(&mut state.functions);
        drop(state);
        // From here on without the lock: others are woken, and run.
        drop(alive);
        rest.extend(children.into_values());
        functions.into_values().for_each(|f| drop(thread::spawn(f)));
        if let Some(handle) = self.handle.upgrade() {
            handle.stop_timer();
        }
        self.leave();
    }

    /// Whether anybody could tell that it ends: who has it, who has its channel, a child,
    /// a function. Nobody gets to it anew who does not yet. (Who had the channel and drops
    /// it says so to nobody: then it stays until it ends.)
    fn matters(&self) -> bool {
        if self.handle.strong_count() > 0 || !self.done.is_only_one() {
            return true;
        }
        let state = self.state.lock();
        !state.children.is_empty() || !state.functions.is_empty()
    }

    /// Its parent need not end it any more; nor need that parent's parent end that, if this
    /// was what mattered there.
    fn leave(&self) {
        let (mut number, mut parent) = (self.number, self.parent());
        while let Some(node) = parent {
            let left = node.state.lock().children.remove(&number);
            if left.is_none() || node.matters() {
                break;
            }
            (number, parent) = (node.number, node.parent());
        }
    }

    /// Its parent, if that can still end.
    fn parent(&self) -> Option<Arc<Node>> {
        self.parent.as_ref().and_then(Weak::upgrade)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        let alive = state.alive.take();
        let children = std::mem::take(&mut state.children);
        drop(state);
        // It has not ended, and will not.
        if let Some(alive) = alive {
            alive.forsake();
        }
        // As with values.
        let mut rest: Vec<Arc<Node>> = children.into_values().collect();
        while let Some(node) = rest.pop() {
            if let Some(node) = Arc::into_inner(node) {
                let children = std::mem::take(&mut node.state.lock().children);
                rest.extend(children.into_values());
            }
        }
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("err", &self.ended())
            .field("deadline", &self.deadline())
            .finish_non_exhaustive()
    }
}

/// Ends the [`Context`] that it was made with.
///
/// Dropping it does so too, like Go's `defer cancel()`: what works on behalf of a
/// function ends with that function. [`detach`](Self::detach) is for those who
/// mean something else.
#[must_use = "dropping it cancels the context"]
pub struct CancelFunc {
    handle: Arc<Handle>,
    on_drop: bool,
}

impl CancelFunc {
    /// Cancels the context and all that were made from it. Again does nothing.
    pub fn cancel(&self) {
        self.handle.node.end(ContextError::Canceled, None);
        park::safe_point();
    }

    /// Likewise, and says why to those who ask for the
    /// [`cause`](Context::cause).
    ///
    /// ```
    /// use heist::sync::{Context, ContextError};
    ///
    /// let (context, cancel) = Context::background().with_cancel();
    /// cancel.cancel_with(std::io::Error::other("disk full"));
    /// assert_eq!(context.err(), Some(ContextError::Canceled));
    /// assert_eq!(context.cause().unwrap().to_string(), "disk full");
    /// ```
    pub fn cancel_with(&self, cause: impl Error + Send + Sync + 'static) {
        self.handle.node.end(ContextError::Canceled, Some(Arc::new(cause)));
        park::safe_point();
    }

    /// Gives up the right to cancel: the context ends with its parent, or at its
    /// deadline.
    pub fn detach(mut self) {
        self.on_drop = false;
    }
}

impl Drop for CancelFunc {
    fn drop(&mut self) {
        if self.on_drop {
            self.cancel();
        }
    }
}

impl fmt::Debug for CancelFunc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelFunc").finish_non_exhaustive()
    }
}

/// A function that [`Context::after_func`] is going to call. Dropping it does not
/// stop that.
///
/// It is called also if nobody has the context any more. One that nothing can end,
/// neither a [`CancelFunc`] nor a deadline nor a parent that can end, calls nothing, and
/// drops its functions when it goes.
pub struct AfterFunc {
    handle: Arc<Handle>,
    number: u64,
}

impl AfterFunc {
    /// The function is not to be called. Returns whether that was in time.
    pub fn stop(&self) -> bool {
        let stopped = self.handle.node.state.lock().functions.remove(&self.number);
        stopped.is_some()
    }
}

impl fmt::Debug for AfterFunc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AfterFunc").finish_non_exhaustive()
    }
}
