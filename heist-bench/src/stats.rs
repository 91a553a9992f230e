//! Order statistics.

/// What a list of samples comes down to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) p99: f64,
}

impl Summary {
    /// Of no samples there is none.
    pub(crate) fn of(samples: &[f64]) -> Option<Summary> {
        let mut sorted = samples.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let (&min, n) = (sorted.first()?, sorted.len());
        let median = (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0;
        // The nearest rank: the smallest sample that is not below 99 % of them.
        let p99 = sorted[(n * 99).div_ceil(100) - 1];
        Some(Summary { median, min, p99 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_none_few_and_many() {
        assert!(Summary::of(&[]).is_none());
        let one = Summary::of(&[7.0]).unwrap();
        assert_eq!((one.median, one.min, one.p99), (7.0, 7.0, 7.0));
        let four = Summary::of(&[4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((four.median, four.min, four.p99), (2.5, 1.0, 4.0));
        let many: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!(Summary::of(&many).unwrap().p99, 198.0);
    }
}
