//! The rest of what `prim` gives out: time, hints, the process, what only the
//! simulator counts.

pub(crate) mod clock {
    use super::super::machine;
    use super::super::record::Op;

    use crate::prim::nanos;
    use std::sync::OnceLock;
    use std::time::{Duration, Instant};

    /// Nanoseconds on the virtual clock.
    #[track_caller]
    pub(crate) fn now() -> u64 {
        machine::step(Op::Clock, 0);
        machine::now()
    }

    /// The moment `after` from now, or the last one that there is.
    #[track_caller]
    pub(crate) fn after(after: Duration) -> u64 {
        now().saturating_add(nanos(after))
    }

    /// What keeps the time for a P: the virtual clock, which costs nothing.
    #[derive(Debug)]
    pub(crate) struct Pace;

    impl Pace {
        pub(crate) const fn new() -> Self {
            Pace
        }

        #[track_caller]
        pub(crate) fn now(&self) -> u64 {
            now()
        }
    }

    /// Now, as an [`Instant`].
    #[track_caller]
    pub(crate) fn instant() -> Instant {
        beginning() + Duration::from_nanos(now())
    }

    /// The moment of an [`Instant`].
    pub(crate) fn at(instant: Instant) -> u64 {
        nanos(instant.saturating_duration_since(beginning()))
    }

    /// When the virtual clock was zero: the same moment for all runs.
    fn beginning() -> Instant {
        static BEGINNING: OnceLock<Instant> = OnceLock::new();
        *BEGINNING.get_or_init(Instant::now)
    }
}

pub(crate) mod hint {
    use super::super::machine;
    use super::super::record::Op;

    #[track_caller]
    pub(crate) fn spin_loop() {
        machine::step(Op::Spin, 0);
    }

    /// Gives the core to another thread.
    #[track_caller]
    pub(crate) fn give_way() {
        machine::step(Op::Yield, 0);
    }

    pub(crate) fn prefetch<T>(_: *const T) {}

    pub(crate) fn prefetch_to_write<T>(_: *const T) {}
}

pub(crate) mod env {
    use super::super::machine;

    /// A simulated process has no variables: a seed would not replay.
    pub(crate) fn var(_: &str) -> Option<String> {
        None
    }

    /// A number for what elsewhere is told apart by its address: those differ from run
    /// to run.
    pub(crate) fn serial() -> usize {
        machine::serial()
    }

    pub(crate) fn entropy() -> u64 {
        u64::from(machine::rng()) << 32 | u64::from(machine::rng())
    }
}

pub(crate) mod os {
    use super::super::machine;

    /// Goes into the report, if there will be one.
    pub(crate) fn write_stderr(text: &[u8]) {
        machine::with(|m| m.say(text));
    }

    /// Nothing fails here.
    pub(crate) fn errno() -> i32 {
        0
    }

    pub(crate) fn set_errno(_: i32) {}

    /// heist ends the process only when all is lost.
    pub(crate) fn exit_now(code: i32) -> ! {
        machine::violate(&format!("heist ended the process with {code}"))
    }
}

/// What the scheduler does, for counts that only the simulator keeps.
pub(crate) mod probe {
    use super::super::machine;

    /// A thief looks at a victim.
    pub(crate) fn victim() {
        machine::with(|m| m.counts.probes += 1);
    }

    /// Memory that may be fresh is about to be used: the kernel finds a page for it.
    pub(crate) fn touch(address: usize) {
        machine::with(|m| {
            if m.timed() && m.lines.touch(address) {
                m.page_fault();
            }
        });
    }

    /// The pages of a range go back to the kernel.
    pub(crate) fn discard(low: usize, size: usize) {
        machine::with(|m| m.lines.discard(low, size));
    }

    /// An M begins to search, or stops.
    pub(crate) fn searching(on: bool) {
        machine::with(|m| {
            let (current, time) = (m.current, m.time());
            let since = &mut m.threads[current].searching_since;
            match (on, *since) {
                (true, None) => {
                    *since = Some(time);
                    m.counts.searches += 1;
                }
                (false, Some(then)) => {
                    *since = None;
                    m.counts.searching += time.saturating_sub(then);
                }
                _ => {}
            }
        });
    }
}
