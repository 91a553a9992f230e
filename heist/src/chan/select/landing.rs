//! Where the message of a select lands.

use std::alloc::{self, Layout};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// Room for the one message that a select receives: of whichever channel wins,
/// so of a type that is not known before. What does not fit into a few words is
/// put on the heap.
#[derive(Debug)]
pub struct Landing {
    few: MaybeUninit<[u64; WORDS]>,
    many: Option<(NonNull<u8>, Layout)>,
}

const WORDS: usize = 6;

// SAFETY: it is memory, and whoever puts a message there says which threads may
// have it.
unsafe impl Send for Landing {}
// SAFETY: as above.
unsafe impl Sync for Landing {}

impl Landing {
    /// Nothing is there.
    #[allow(clippy::new_without_default)] // for the macros alone
    #[inline]
    pub const fn new() -> Self {
        Landing { few: MaybeUninit::uninit(), many: None }
    }

    /// Whether messages of this layout need memory of their own.
    pub(super) const fn is_large(message: Layout) -> bool {
        message.size() > size_of::<[u64; WORDS]>() || message.align() > align_of::<u64>()
    }

    /// Makes room for such a message. Nothing is there yet.
    #[cold]
    pub(super) fn make_room(&mut self, message: Layout) {
        if let Some((_, layout)) = &self.many
            && layout.size() >= message.size()
            && layout.align() >= message.align()
        {
            return;
        }
        // For both, if there were others before.
        let size = self.many.as_ref().map_or(0, |(_, layout)| layout.size()).max(message.size());
        let align = self.many.as_ref().map_or(1, |(_, layout)| layout.align()).max(message.align());
        self.free();
        let Ok(layout) = Layout::from_size_align(size.max(1), align) else {
            unreachable!("the layouts of types, one of each")
        };
        // SAFETY: the size is not zero.
        let Some(memory) = NonNull::new(unsafe { alloc::alloc(layout) }) else {
            alloc::handle_alloc_error(layout)
        };
        self.many = Some((memory, layout));
    }

    /// Where messages land for which there is room: the large ones, and the
    /// others.
    #[inline]
    pub(super) fn slot(&mut self, large: bool) -> *mut () {
        match &self.many {
            Some((memory, _)) if large => memory.as_ptr().cast(),
            _ => self.few.as_mut_ptr().cast(),
        }
    }

    fn free(&mut self) {
        if let Some((memory, layout)) = self.many.take() {
            // SAFETY: allocated with this layout, and forgotten here.
            unsafe { alloc::dealloc(memory.as_ptr(), layout) };
        }
    }
}

impl Drop for Landing {
    #[inline]
    fn drop(&mut self) {
        if self.many.is_some() {
            self.free();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_for_all_that_was_asked_for() {
        #[repr(align(64))]
        struct Wide(#[allow(dead_code)] u8);
        assert!(!Landing::is_large(Layout::new::<[u64; WORDS]>()));
        assert!(Landing::is_large(Layout::new::<Wide>()));
        let mut landing = Landing::new();
        landing.make_room(Layout::new::<[u8; 1 << 20]>());
        landing.make_room(Layout::new::<Wide>());
        let slot = landing.slot(true).cast::<[u8; 1 << 20]>();
        assert!(slot.cast::<Wide>().is_aligned());
        // SAFETY: there is room for it.
        unsafe { slot.write_bytes(7, 1) };
        assert_ne!(landing.slot(false), slot.cast());
    }
}
