//! What operations cost, and where the numbers come from.

/// A table of costs, in nanoseconds where nothing else is said.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Costs {
    /// An access to a line in the core's own cache, with the instructions around
    /// it, in eighths of a nanosecond: a core does several at a time.
    pub(crate) own_eighths: u64,
    /// What a locked instruction or a full fence costs on top.
    pub(crate) locked: u64,
    /// A line from a core of the same last-level cache.
    pub(crate) cache: u64,
    /// From another cache of the same node.
    pub(crate) node: u64,
    /// From another node.
    pub(crate) remote: u64,
    /// Reading the clock.
    pub(crate) clock: u64,
    /// A pause in a spin loop.
    pub(crate) pause: u64,
    /// A system call that wakes nobody and does not sleep.
    pub(crate) call: u64,
    /// What a futex call costs on top when it wakes somebody on an idle core.
    pub(crate) wake_call: u64,
    /// From a wake-up until the woken thread runs on an idle core.
    pub(crate) wake: u64,
    /// From one thread to another on a core.
    pub(crate) switch: u64,
    /// Starting a thread, for who does it.
    pub(crate) start: u64,
    /// The first touch of a page.
    pub(crate) fault: u64,
    /// A barrier on all cores (membarrier), for who asks for it.
    pub(crate) barrier: u64,
    /// Sending a signal, and again for the thread that has to handle it.
    pub(crate) signal: u64,
    /// How long a thread keeps its core while others wait for one.
    pub(crate) slice: u64,
    /// How long it has had it when a thread that wakes up may take it.
    pub(crate) granularity: u64,
}

/// The machine that this was written on: a virtual one with two cores of an Intel
/// Xeon (Sapphire Rapids, 2.3 GHz), Linux 6.18.
///
/// | cost | source |
/// |---|---|
/// | own, locked | fitted: a goroutine spawned, run and ended on one P; a locked instruction alone takes 6.7 ns |
/// | cache | measured: a line goes there and back in 151 ns |
/// | node, remote | taken from published tables of core-to-core latency: 1.5 and 3 times the above |
/// | clock, pause, call | measured: `clock_gettime` 30, `pause` 14, a futex call without a sleeper 156 |
/// | wake_call, wake | measured: the waker pays 11.2 µs in all, the woken runs after 35 µs. A core of a virtual machine that idles has left the machine |
/// | switch | measured: two threads that wake each other on one core, 2.2 µs there and back with two calls |
/// | start, fault, barrier | measured: 4.4 µs, 1.8 µs, 4.7 µs |
/// | slice, granularity | Linux's defaults |
pub(crate) const HERE: Costs = Costs {
    own_eighths: 6,
    locked: 4,
    cache: 75,
    node: 115,
    remote: 230,
    clock: 30,
    pause: 14,
    call: 160,
    wake_call: 11_000,
    wake: 35_000,
    switch: 900,
    start: 4_400,
    fault: 1_800,
    barrier: 4_700,
    signal: 2_000,
    slice: 3_000_000,
    granularity: 1_000_000,
};

/// The same without virtualization: what wakes an idle core and what enters the
/// kernel is cheaper. The rest is equal.
///
/// | cost | source |
/// |---|---|
/// | wake_call, wake | published figures for Linux on servers: 1 to 2 µs and 3 to 6 µs |
/// | fault | 0.5 µs, likewise |
pub(crate) const METAL: Costs = Costs { wake_call: 1_500, wake: 5_000, fault: 500, ..HERE };
