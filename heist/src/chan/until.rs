//! Until when a caller waits.

use crate::prim::clock;
use std::time::{Duration, Instant};

/// How long to wait. The clock is read only by those who must.
#[derive(Clone, Copy, Debug)]
pub(super) enum Until {
    Forever,
    Moment(Instant),
    Now,
}

impl Until {
    /// That long from now.
    pub(super) fn after(timeout: Duration) -> Until {
        match clock::instant().checked_add(timeout) {
            Some(moment) => Until::Moment(moment),
            None => Until::Forever,
        }
    }

    /// On the scheduler's clock.
    #[inline(always)]
    pub(super) fn clock(self) -> Option<u64> {
        match self {
            Until::Forever => None,
            Until::Moment(moment) => Some(clock::at(moment)),
            Until::Now => Some(0),
        }
    }

    /// Whether that moment has come.
    #[inline(always)]
    pub(super) fn is_over(self, deadline: Option<u64>) -> bool {
        match (self, deadline) {
            (Until::Forever, _) | (_, None) => false,
            (_, Some(deadline)) => clock::now() >= deadline,
        }
    }
}
