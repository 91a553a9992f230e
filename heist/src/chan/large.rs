//! Messages that need much of a stack.

use crate::stack;

/// Whether a message needs so much of the stack that those who send and receive it do so
/// in a function of their own: a function that calls them several times would have room
/// for all those messages in its frame. (So would one without optimisation for small
/// ones: there, nothing is inlined.)
pub(super) const fn is_large<T>() -> bool {
    size_of::<T>() > 256
}

/// From this size on, several copies of a message may be more than is left of a
/// goroutine's stack.
pub(super) const fn is_huge<T>() -> bool {
    size_of::<T>() >= 4 << 10
}

/// How many copies of a message are made between its sender or receiver and the channel,
/// at most, by functions that are active at the same time.
const COPIES: usize = if cfg!(debug_assertions) { 32 } else { 6 };

/// What those functions need besides.
const REST: usize = 16 << 10;

/// Moves messages of type `T`, on a stack with room for the copies that are made of them.
/// What is captured is copied, too: messages by reference.
#[inline(always)]
pub(super) fn with_room<T, R>(moves: impl FnOnce() -> R) -> R {
    if const { is_huge::<T>() } { with_room_for(size_of::<T>(), moves) } else { moves() }
}

/// The same, for messages of so many bytes.
#[inline(always)]
pub(super) fn with_room_for<R>(size: usize, moves: impl FnOnce() -> R) -> R {
    elsewhere(size.saturating_mul(COPIES).saturating_add(REST), moves)
}

/// The caller's frame, and this one, have no more than the result.
#[inline(never)]
fn elsewhere<R, F: FnOnce() -> R>(bytes: usize, moves: F) -> R {
    #[inline(never)] // all the copies are in this one's
    fn put<R>(result: &mut Option<R>, moves: impl FnOnce() -> R) {
        *result = Some(moves());
    }
    let mut result = None;
    stack::ensure(bytes, || put(&mut result, moves));
    match result {
        Some(result) => result,
        None => unreachable!("`ensure` calls what it is given"),
    }
}
