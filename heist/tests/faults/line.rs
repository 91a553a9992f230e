//! A parser for the lines that programs print.

/// A parser for lines: each step takes a piece off the front.
pub(crate) struct Line<'a>(pub(crate) &'a str);

impl Line<'_> {
    pub(crate) fn exactly(&mut self, text: &str) -> bool {
        self.0.strip_prefix(text).map(|rest| self.0 = rest).is_some()
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        let end = self.0.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.0.len());
        let (number, rest) = self.0.split_at(end);
        self.0 = rest;
        number.parse().ok()
    }

    /// `[ 1 2 3 ]`.
    pub(crate) fn list(&mut self) -> Option<Vec<u64>> {
        let mut items = Vec::new();
        if !self.exactly("[ ") {
            return None;
        }
        while !self.exactly("]") {
            items.push(self.number()?);
            if !self.exactly(" ") {
                return None;
            }
        }
        Some(items)
    }
}
