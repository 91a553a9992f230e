//! The thread's slot: one word of the thread's own.
//!
//! On x86-64 it is a thread-local word that is read by one instruction each time it
//! is asked for.
//!
//! A goroutine can go on on another thread after any call that may block, and
//! the compiler, which does not know that, would reuse the address of a
//! `thread_local!` that it computed before the call. It knows nothing of this
//! word, and the assembler code that reads it is volatile: each read says
//! whose thread it is now.
//!
//! The model is initial-exec: the linker knows the word's offset from the
//! thread pointer, or the loader writes it down once. Elsewhere the word is read by a
//! function that is never inlined.

pub(crate) use own::{set_slot, slot};

#[cfg(target_arch = "x86_64")]
mod own {
    use std::arch::{asm, global_asm};

    // Another version of this library in the same program has another word.
    macro_rules! word {
        () => {
            concat!(
                "heist_slot_",
                env!("CARGO_PKG_VERSION_MAJOR"),
                "_",
                env!("CARGO_PKG_VERSION_MINOR"),
                "_",
                env!("CARGO_PKG_VERSION_PATCH")
            )
        };
    }

    global_asm!(
        ".pushsection .tbss,\"awT\",@nobits",
        ".balign 8",
        concat!(".globl ", word!()),
        concat!(".hidden ", word!()),
        concat!(".type ", word!(), ", @object"),
        concat!(".size ", word!(), ", 8"),
        concat!(word!(), ":"),
        ".zero 8",
        ".popsection",
    );

    #[inline(always)]
    pub(crate) fn slot() -> *const () {
        let value;
        // SAFETY: reads eight bytes of this thread's storage, which are
        // there from its start to its end. No memory is written.
        unsafe {
            asm!(
                concat!("mov {0}, qword ptr [rip + ", word!(), "@GOTTPOFF]"),
                "mov {0}, qword ptr fs:[{0}]",
                out(reg) value,
                options(nostack, preserves_flags, readonly)
            );
        }
        value
    }

    pub(crate) fn set_slot(value: *const ()) {
        // SAFETY: as in `slot`; nobody else writes the word.
        unsafe {
            asm!(
                concat!("mov {0}, qword ptr [rip + ", word!(), "@GOTTPOFF]"),
                "mov qword ptr fs:[{0}], {1}",
                out(reg) _,
                in(reg) value,
                options(nostack, preserves_flags)
            );
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod own {
    use std::cell::Cell;
    use std::ptr;

    thread_local! {
        static SLOT: Cell<*const ()> = const { Cell::new(ptr::null()) };
    }

    /// Never inlined: the compiler would reuse the address of the
    /// thread-local that it computed before a call that changed threads.
    #[inline(never)]
    pub(crate) fn slot() -> *const () {
        SLOT.with(Cell::get)
    }

    #[inline(never)]
    pub(crate) fn set_slot(value: *const ()) {
        SLOT.with(|slot| slot.set(value));
    }
}
