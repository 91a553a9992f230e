//! The names of goroutines that have one.
//!
//! Beside the control blocks, since few goroutines are named.

use crate::prim::lock::{Lock, Rank};
use std::collections::BTreeMap;
use std::sync::Arc;

static NAMES: Lock<BTreeMap<u64, Arc<str>>> = Lock::new(Rank::Names, BTreeMap::new());

pub(crate) fn insert(id: u64, name: Arc<str>) {
    NAMES.lock().insert(id, name);
}

pub(crate) fn remove(id: u64) {
    NAMES.lock().remove(&id);
}

/// The name of a goroutine that lives.
pub(crate) fn get(id: u64) -> Option<Arc<str>> {
    NAMES.lock().get(&id).cloned()
}

/// Like [`get`], for reports from a process that is about to die.
pub(crate) fn try_get(id: u64) -> Option<Arc<str>> {
    NAMES.try_lock()?.get(&id).cloned()
}
