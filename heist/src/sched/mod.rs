//! The scheduler: goroutines (G) on threads (M) with the right to run (P).
//!
//! `README.md` beside this file has the states, the invariants, the argument
//! why no wake-up is lost, the rejected designs and the departures from Go.
//!
//! | file | concept |
//! |---|---|
//! | `g`, `g_pool`, `task`, `storage`, `frames`, `names`, `local` | a goroutine: its block, its memory, its closure and result, room for those, its stack, its name, its values |
//! | `p`, `m`, `schedt`, `shared`, `global` | the right to run; a thread; what all share; what its lock protects; the global queue |
//! | `find`, `steal`, `steal_order`, `near`, `mask` | which goroutine is next; whose, of those that have some |
//! | `exec`, `heir`, `park`, `in_place`, `locked` | running one; the next one on its stack; leaving and coming back; waiting with the thread; keeping it |
//! | `tls_guard` | who must come back to its thread: its stack refers to thread-locals |
//! | `policy` | where all this departs from Go, for comparisons |
//! | `spawn`, `wake`, `apart`, `brief`, `waiter`, `nap`, `timers`, `gather`, `alarm` | a new one; whom to wake for it; on which CPU; and when not to; whoever waits; only for the clock; until when; when many are due; what the clock calls |
//! | `forks`, `desk`, `branches`, `thieves` | fork-join: a fork; what it looks at first; sharing its second branch; asking for one |
//! | `jobs`, `told` | what `par` spawns: newest first; on a certain P |
//! | `syscall`, `retake`, `freeze`, `account` | calls that block; taking the P of those that do not come back; stopping those that compute on; what they have had |
//! | `stop` | stopping the world; another number of Ps |
//! | `netpoll`, `company` | waiting for descriptors: who looks, and whom to wake; whether it pays to wake another |
//! | `sysmon`, `backoff`, `lookout`, `deadlock` | watching; how often; for late timers; when nobody can wake anybody |
//! | `signal`, `shutdown` | faults and preemption; the end |
//! | `protocol/` | the shared words of all this, model-checked |

pub(crate) mod protocol;

#[cfg(not(loom))]
mod account;
#[cfg(not(loom))]
#[allow(unsafe_code)] // named file: functions in alarms
pub(crate) mod alarm;
#[cfg(not(loom))]
pub(crate) mod apart;
#[cfg(not(loom))]
mod backoff;
#[cfg(not(loom))]
#[allow(unsafe_code)] // named file: branches in frames and blocks
pub(crate) mod branches;
#[cfg(not(loom))]
pub(crate) mod brief;
#[cfg(not(loom))]
pub(crate) mod company;
#[cfg(not(loom))]
mod deadlock;
#[cfg(not(loom))]
#[allow(unsafe_code)] // named file: lists as words
pub(crate) mod desk;
#[cfg(not(loom))]
#[allow(unsafe_code)] // named file: frames
pub(crate) mod exec;
#[cfg(not(loom))]
pub(crate) mod find;
#[cfg(not(loom))]
#[allow(unsafe_code)] // named file: forks in frames
pub(crate) mod forks;
#[cfg(not(loom))]
#[allow(unsafe_code)] // named file: frames
pub(crate) mod frames;
#[cfg(not(loom))]
pub(crate) mod freeze;
#[cfg(not(loom))]
#[allow(unsafe_code)] // named file: links and static references kept as pointers
pub(crate) mod g;
#[cfg(not(loom))]
#[allow(unsafe_code)] // named file: the memory of control blocks
pub(crate) mod g_pool;
#[cfg(not(loom))]
pub(crate) mod gather;
#[cfg(not(loom))]
mod global;
#[cfg(not(loom))]
#[allow(unsafe_code)] // named file: frames
pub(crate) mod heir;
#[cfg(not(loom))]
#[allow(unsafe_code)] // named file: frames
pub(crate) mod in_place;
#[cfg(not(loom))]
pub(crate) mod jobs;
#[cfg(not(loom))]
#[allow(unsafe_code)] // named file: frames
pub(crate) mod local;
#[cfg(not(loom))]
#[allow(unsafe_code)] // named file: frames
pub(crate) mod locked;
#[cfg(not(loom))]
mod lookout;
#[cfg(not(loom))]
#[allow(unsafe_code)] // named file: the thread's slot
pub(crate) mod m;
#[cfg(not(loom))]
pub(crate) mod mask;
#[cfg(not(loom))]
pub(crate) mod names;
#[cfg(not(loom))]
pub(crate) mod nap;
#[cfg(not(loom))]
pub(crate) mod near;
#[cfg(not(loom))]
pub(crate) mod netpoll;
#[cfg(not(loom))]
#[allow(unsafe_code)] // named file: what only the holder touches
pub(crate) mod p;
#[cfg(not(loom))]
#[allow(unsafe_code)] // named file: frames
pub(crate) mod park;
#[cfg(not(loom))]
pub(crate) mod policy;
#[cfg(not(loom))]
pub(crate) mod retake;
#[cfg(not(loom))]
#[allow(unsafe_code)] // named file: the table of schedulers
pub(crate) mod schedt;
#[cfg(not(loom))]
mod shared;
#[cfg(not(loom))]
#[allow(unsafe_code)] // named file: frames
pub(crate) mod shutdown;
#[cfg(not(loom))]
#[allow(unsafe_code)] // named file: handlers
pub(crate) mod signal;
#[cfg(not(loom))]
#[allow(unsafe_code)] // named file: closures that borrow
pub(crate) mod spawn;
#[cfg(not(loom))]
pub(crate) mod steal;
#[cfg(not(loom))]
pub(crate) mod steal_order;
#[cfg(not(loom))]
#[allow(unsafe_code)] // named file: what only the holder touches
pub(crate) mod stop;
#[cfg(not(loom))]
#[allow(unsafe_code)] // named file: values of any type in a few words
pub(crate) mod storage;
#[cfg(not(loom))]
pub(crate) mod syscall;
#[cfg(not(loom))]
#[allow(unsafe_code)] // named file: what only the holder touches
pub(crate) mod sysmon;
#[cfg(not(loom))]
#[allow(unsafe_code)] // named file: the closure and the result in a block
pub(crate) mod task;
#[cfg(not(loom))]
#[allow(unsafe_code)] // named file: the forks of others
pub(crate) mod thieves;
#[cfg(not(loom))]
pub(crate) mod timers;
#[cfg(not(loom))]
#[allow(unsafe_code)] // named file: the stacks of others
pub(crate) mod tls_guard;
#[cfg(not(loom))]
#[allow(unsafe_code)] // named file: closures that borrow
pub(crate) mod told;
#[cfg(not(loom))]
#[allow(unsafe_code)] // named file: tagged words
pub(crate) mod waiter;
#[cfg(not(loom))]
pub(crate) mod wake;
