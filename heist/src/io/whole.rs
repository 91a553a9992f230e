//! Writes that end when everything is written, as those of a blocking descriptor do.

use std::io::{self, IoSlice};

/// One write, and how far it is.
pub(crate) struct Whole {
    len: usize,
    done: usize,
}

impl Whole {
    pub(crate) fn new(len: usize) -> Whole {
        Whole { len, done: 0 }
    }

    /// Makes calls until everything is written, or until one would block: whoever has
    /// waited then tries once more. `write` leaves out what is written already, so many
    /// bytes. If `goes_on` denies it, what is written is all.
    #[inline(always)] // the first call nearly always takes everything
    pub(crate) fn attempt(
        &mut self,
        goes_on: impl Fn() -> bool,
        mut write: impl FnMut(usize) -> io::Result<usize>,
    ) -> io::Result<usize> {
        loop {
            if self.done > 0 && !goes_on() {
                return Ok(self.done);
            }
            match write(self.done) {
                Ok(n) => {
                    self.done += n;
                    if n == 0 || self.done >= self.len {
                        return Ok(self.done);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
                Err(error) => return self.end(Err(error)),
            }
        }
    }

    /// What the caller is told at the end: an error, of a timeout say, only if nothing
    /// was written before.
    #[inline(always)]
    pub(crate) fn end(&self, written: io::Result<usize>) -> io::Result<usize> {
        match written {
            Err(_) if self.done > 0 && self.done < self.len => Ok(self.done),
            written => written,
        }
    }
}

/// What is left of some slices after so many bytes.
#[cold]
pub(crate) fn rest<'a>(slices: &[IoSlice<'a>], done: usize) -> Vec<IoSlice<'a>> {
    let mut all = slices.to_vec();
    let mut left = &mut all[..];
    IoSlice::advance_slices(&mut left, done);
    let first = slices.len() - left.len();
    all.split_off(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::ErrorKind::{BrokenPipe, WouldBlock};

    /// What a write makes of such calls.
    fn attempt(
        whole: &mut Whole,
        goes_on: bool,
        calls: &[Result<usize, io::ErrorKind>],
    ) -> Result<usize, io::ErrorKind> {
        let mut calls = calls.iter();
        let written = whole.attempt(|| goes_on, |_| Ok((*calls.next().unwrap())?));
        assert_eq!(calls.next(), None, "all of them were made");
        written.map_err(|error| error.kind())
    }

    #[test]
    fn it_goes_on_until_everything_is_written() {
        assert_eq!(attempt(&mut Whole::new(10), true, &[Ok(10)]), Ok(10));
        assert_eq!(attempt(&mut Whole::new(0), true, &[Ok(0)]), Ok(0));
        let mut whole = Whole::new(10);
        assert_eq!(attempt(&mut whole, true, &[Err(WouldBlock)]), Err(WouldBlock));
        assert_eq!(attempt(&mut whole, true, &[Ok(3), Ok(2), Err(WouldBlock)]), Err(WouldBlock));
        assert_eq!(attempt(&mut whole, true, &[Ok(5)]), Ok(10));
    }

    #[test]
    fn what_was_written_is_told_before_an_error() {
        assert_eq!(attempt(&mut Whole::new(10), true, &[Err(BrokenPipe)]), Err(BrokenPipe));
        assert_eq!(attempt(&mut Whole::new(10), true, &[Ok(3), Err(BrokenPipe)]), Ok(3));
        assert_eq!(attempt(&mut Whole::new(10), false, &[Ok(3)]), Ok(3));
        let mut whole = Whole::new(10);
        assert_eq!(attempt(&mut whole, true, &[Ok(3), Err(WouldBlock)]), Err(WouldBlock));
        assert_eq!(attempt(&mut whole, false, &[]), Ok(3), "it failed meanwhile");
        assert_eq!(whole.end(Err(WouldBlock.into())).unwrap(), 3, "too late");
        assert!(Whole::new(10).end(Err(WouldBlock.into())).is_err());
    }

    #[test]
    fn slices_go_on_where_they_were() {
        let slices = [IoSlice::new(b"ab"), IoSlice::new(b""), IoSlice::new(b"cde")];
        let left =
            |done| rest(&slices, done).iter().map(|s| s.to_vec()).collect::<Vec<_>>().concat();
        assert_eq!(left(1), b"bcde");
        assert_eq!(left(2), b"cde");
        assert_eq!(left(4), b"e");
        assert_eq!(left(5), b"");
    }
}
