//! Tables of text.

use std::fmt;

/// A heading, columns, rows, and what there is to say about them.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Vec<String>>,
    pub(crate) notes: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Column {
    /// Text.
    Left(&'static str),
    /// Numbers.
    Right(&'static str),
}

impl Column {
    fn head(self) -> &'static str {
        match self {
            Column::Left(head) | Column::Right(head) => head,
        }
    }
}

impl Table {
    pub(crate) fn new(title: impl Into<String>, columns: &[Column]) -> Table {
        Table {
            title: title.into(),
            columns: columns.to_vec(),
            rows: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }

    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head: Vec<String> = self.columns.iter().map(|c| c.head().to_owned()).collect();
        let lines = || std::iter::once(&head).chain(&self.rows);
        let width = |i: usize| lines().map(|line| line[i].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..head.len()).map(width).collect();
        writeln!(f, "{}", self.title)?;
        for line in lines() {
            let mut text = String::new();
            for ((cell, column), &width) in line.iter().zip(&self.columns).zip(&widths) {
                text += &match column {
                    Column::Left(_) => format!("  {cell:<width$}"),
                    Column::Right(_) => format!("  {cell:>width$}"),
                };
            }
            writeln!(f, "{}", text.trim_end())?;
        }
        for note in &self.notes {
            writeln!(f, "  {note}")?;
        }
        Ok(())
    }
}

/// A number with about three digits that matter.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        v if v < 10.0 => format!("{value:.2}"),
        v if v < 1000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// A whole number with its thousands apart.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Of things, with an s unless it is one.
pub(crate) fn plural(n: usize, thing: &str) -> String {
    format!("{n} {thing}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new("title", &[Column::Left("peer"), Column::Right("ns")]);
        table.row(["heist".into(), "5".into()]);
        table.row(["may".into(), "123".into()]);
        table.note("note");
        let expected = "title\n  peer    ns\n  heist    5\n  may    123\n  note\n";
        assert_eq!(table.to_string(), expected);
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([number(1.234), number(56.78), number(12345.6)], ["1.23", "56.8", "12346"]);
        assert_eq!([count(7), count(1000), count(1234567)], ["7", "1,000", "1,234,567"]);
        assert_eq!([plural(1, "proc"), plural(2, "proc")], ["1 proc", "2 procs"]);
    }
}
