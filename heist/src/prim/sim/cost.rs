//! What operations cost, in nanoseconds, and where the numbers come from.

/// The table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Costs {
    /// An access to a line in the core's own cache, with the instructions around
    /// it.
    pub(crate) own: u64,
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
    /// A futex call, for who makes it.
    pub(crate) futex: u64,
    /// From the wake-up until the woken thread runs on an idle core.
    pub(crate) wake: u64,
    /// From one thread to another on a core.
    pub(crate) switch: u64,
    /// Starting a thread, for who does it.
    pub(crate) start: u64,
    /// The first touch of a page.
    pub(crate) fault: u64,
    /// A barrier on all cores (membarrier), for who asks for it.
    pub(crate) barrier: u64,
    /// How long a thread keeps its core while others wait for one.
    pub(crate) slice: u64,
    /// How long it has had it when a thread that wakes up may take it.
    pub(crate) granularity: u64,
}

/// The costs in use.
///
/// | cost | ns | source |
/// |---|---|---|
/// | own | 2 | calibrated: a yield on one core (`SCALING.md`) |
pub(crate) const COSTS: Costs = Costs {
    own: 2,
    locked: 5,
    cache: 60,
    node: 110,
    remote: 220,
    clock: 25,
    pause: 20,
    futex: 1_500,
    wake: 5_000,
    switch: 1_500,
    start: 15_000,
    fault: 700,
    barrier: 10_000,
    slice: 3_000_000,
    granularity: 1_000_000,
};
