//! The guard of thread-locals: a goroutine whose stack refers to its thread's own
//! memory waits with its thread.
//!
//! A goroutine may wait while it holds a borrow of a `thread_local!`, or while the
//! compiler has the address of one in a register. On another thread that would be
//! another thread's memory. Rust cannot forbid it, so it can be looked for: whenever
//! a goroutine waits or yields, its registers and the used part of its stack are
//! searched for a word that points into the thread's block of thread-locals. If
//! there is one, the M waits with it (`in_place`), so that also nobody else finds a
//! `RefCell` borrowed.
//!
//! A word that only looks like a reference is often one that an earlier call left on
//! the stack, where a later frame has a hole. In optimised code they are rare, in
//! debug builds common, where frames have many holes. They cost speed, and threads;
//! past half of the most threads that a program may have, nobody is held any more.
//!
//! There is no limit on how much is searched: all of a stack that is in use, so that
//! what is found does not depend on how deep it lies. Deep stacks make waits dear.
//!
//! # Rejected
//!
//! *Searching only when another M is about to run the goroutine*, and sending it home
//! then. It costs nothing as long as goroutines stay on their M, and it was built.
//! But the M may wait in place with another goroutine meanwhile, or in a system call,
//! for something that only this goroutine can give it: a word that only looks like a
//! reference would stop a program for good. And a thread could end only after a look
//! at the stacks of all goroutines.
//!
//! # What it does not see
//!
//! Thread-locals whose memory is not in the block: those of C libraries made with
//! `pthread_key_create`, those of libraries that were loaded later and found no room
//! there, and whatever a thread-local only points to, such as an `Rc` that was
//! cloned from one.

use super::g::{G, WaitReason};
use super::m::M;
use super::schedt::Config;
use crate::context::{self, Part};
use crate::prim::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::prim::lock::{Lock, Rank};
use crate::prim::thread;
use std::panic::Location;
use std::ptr;

/// An M's thread: where its own memory lies.
pub(crate) struct ThreadMemory {
    /// Stacks are searched.
    on: AtomicBool,
    blocks: [Block; 2],
    /// The most threads that wait with their goroutines for this guard's sake: words
    /// that only look like references must not cost a program all its threads.
    most_in_place: AtomicUsize,
}

/// A block of memory. The complement of its address, since the address itself would
/// be found on the stacks of those who search.
#[derive(Default)]
struct Block {
    not_low: AtomicUsize,
    size: AtomicUsize,
}

impl ThreadMemory {
    pub(crate) fn new() -> Self {
        ThreadMemory {
            on: AtomicBool::new(false),
            blocks: Default::default(),
            most_in_place: AtomicUsize::new(0),
        }
    }

    /// Notes where the calling thread's memory lies, which is the M's. Relaxed, here
    /// and where it is read: that is on the same thread.
    #[inline(always)] // the frame that it is called from is the thread's first
    pub(crate) fn found(&self, config: &Config) {
        self.on.store(config.tls_guard, Ordering::Relaxed);
        if !config.tls_guard {
            return;
        }
        let bounds = thread::tls_bounds(context::exact_stack_pointer());
        for (block, (low, high)) in self.blocks.iter().zip(bounds) {
            block.not_low.store(!low, Ordering::Relaxed);
            block.size.store(high - low, Ordering::Relaxed);
        }
        self.most_in_place.store(config.max_threads / 2, Ordering::Relaxed);
    }

    /// Whether stacks are searched.
    #[inline(always)]
    pub(crate) fn is_guarded(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// The address of a word in `part` that points into this thread's memory.
    ///
    /// # Safety
    ///
    /// The part is mapped memory, and nobody writes to it meanwhile but the caller.
    unsafe fn search(&self, part: Part) -> Option<usize> {
        self.blocks.iter().find_map(|block| {
            let size = block.size.load(Ordering::Relaxed);
            let not_low = block.not_low.load(Ordering::Relaxed);
            // SAFETY: the caller's promise.
            if size == 0 { None } else { unsafe { find_word(part, not_low, size) } }
        })
    }
}

/// The address of the first aligned word in `part` that lies in a block, which is
/// given by the complement of its address and its size.
///
/// In assembly: parts of a stack may never have been written to, and whose
/// variables the words are the compiler knows better than to let others look.
///
/// # Safety
///
/// As [`ThreadMemory::search`].
unsafe fn find_word((low, high): Part, not_low: usize, size: usize) -> Option<usize> {
    let mut at = low.next_multiple_of(size_of::<usize>());
    // The difference of a word and the block's address is its sum with the
    // complement, and one.
    // SAFETY: reads the words of the part, which the caller promises.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        std::arch::asm!(
            "2:",
            "cmp {at}, {end}",
            "jae 3f",
            "mov {word}, [{at}]",
            "lea {word}, [{word} + {not_low} + 1]",
            "cmp {word}, {size}",
            "jb 3f",
            "add {at}, 8",
            "jmp 2b",
            "3:",
            "xor {word:e}, {word:e}",
            at = inout(reg) at,
            end = in(reg) high,
            word = out(reg) _,
            not_low = in(reg) not_low,
            size = in(reg) size,
            options(readonly, nostack),
        );
        #[cfg(target_arch = "aarch64")]
        std::arch::asm!(
            "2:",
            "cmp {at}, {end}",
            "b.hs 3f",
            "ldr {word}, [{at}], #8",
            "add {word}, {word}, {not_low}",
            "add {word}, {word}, #1",
            "cmp {word}, {size}",
            "b.hs 2b",
            "sub {at}, {at}, #8",
            "3:",
            "mov {word}, xzr",
            at = inout(reg) at,
            end = in(reg) high,
            word = out(reg) _,
            not_low = in(reg) not_low,
            size = in(reg) size,
            options(readonly, nostack),
        );
    }
    (at < high).then_some(at)
}

/// Calls `f` with its first two arguments and the stack pointer, above which lie the
/// registers that functions keep for their callers, and then the caller's frame.
/// Nothing else: a frame of the compiler's would have words in it that were left
/// there by others.
///
/// # Safety
///
/// `f` does not unwind.
#[unsafe(naked)]
unsafe extern "C" fn with_registers_on_stack(
    m: &'static M,
    g: &'static G,
    f: extern "C" fn(&'static M, &'static G, usize) -> bool,
) -> bool {
    #[cfg(target_arch = "x86_64")]
    std::arch::naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "push 0", // for the alignment
        "mov rax, rdx",
        "mov rdx, rsp",
        "call rax",
        "add rsp, 56",
        "ret",
    );
    #[cfg(target_arch = "aarch64")]
    std::arch::naked_asm!(
        "stp x29, x30, [sp, #-96]!",
        "stp x19, x20, [sp, #16]",
        "stp x21, x22, [sp, #32]",
        "stp x23, x24, [sp, #48]",
        "stp x25, x26, [sp, #64]",
        "stp x27, x28, [sp, #80]",
        "mov x9, x2",
        "mov x2, sp",
        "blr x9",
        "ldp x29, x30, [sp], #96",
        "ret",
    );
}

/// Whether the calling goroutine, which runs on `m` and is about to wait, refers to
/// the thread's memory and is to wait with it.
#[cold]
#[inline(always)]
pub(crate) fn holds_thread_local(m: &'static M, g: &'static G) -> bool {
    // SAFETY: it catches nothing and calls nothing that unwinds.
    unsafe { with_registers_on_stack(m, g, search_running) }
}

extern "C" fn search_running(m: &'static M, g: &'static G, lowest: usize) -> bool {
    let sched = m.sched;
    if sched.in_place.load(Ordering::Relaxed) >= m.tls.most_in_place.load(Ordering::Relaxed) {
        return false;
    }
    sched.tls_searches.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the goroutine runs, and it is the caller: its stack is still.
    let found = unsafe {
        g.frame().and_then(|frame| frame.each_part_from(lowest, |part| m.tls.search(part)))
    };
    if let Some(at) = found {
        hold(m, g, at, lowest);
    }
    found.is_some()
}

/// Counts, and in debug builds reports, a goroutine that is held on its thread.
#[cold]
fn hold(m: &'static M, g: &'static G, at: usize, lowest: usize) {
    m.sched.tls_holds.fetch_add(1, Ordering::Relaxed);
    if !cfg!(debug_assertions) || !first_of_its_site(g.site()) {
        return;
    }
    let waits = match g.wait() {
        (WaitReason::None, _) => "a yield".to_owned(),
        (reason, _) => match g.wait_site() {
            Some(site) => format!("{} at {site}", reason.text()),
            None => reason.text().to_owned(),
        },
    };
    let above = at.wrapping_sub(lowest);
    let place =
        if above < 1 << 30 { format!(", {above} bytes up its stack") } else { String::new() };
    let site = g.site().map_or_else(|| "nowhere".to_owned(), Location::to_string);
    let text = format!(
        "heist: goroutine {} seems to refer to a thread-local across {waits}{place};\n\t\
         it keeps its thread for that (see heist::runtime::pin and goroutine_local!)\n\tspawned at {site}\n",
        g.id(),
    );
    crate::prim::os::write_stderr(text.as_bytes());
}

fn first_of_its_site(site: Option<&'static Location<'static>>) -> bool {
    static SAID: Lock<Vec<usize>> = Lock::new(Rank::Leaf, Vec::new());
    let site = site.map_or(0, |site| ptr::from_ref(site).addr());
    let mut said = SAID.lock();
    let first = !said.contains(&site);
    if first {
        said.push(site);
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_by_where_they_point() {
        let (low, size) = (0x7000_0000_1000usize, 0x800usize);
        let mut words = [0usize, usize::MAX, low - 1, low + size, 7];
        let part = words.as_ptr_range();
        let part = (part.start as usize, part.end as usize);
        // SAFETY: the part is the array, which nobody else has.
        let find = || unsafe { find_word(part, !low, size) };
        assert_eq!(find(), None);
        for (i, word) in [(0, low), (4, low + size - 1), (2, low + 8)] {
            let before = std::mem::replace(&mut words[i], word);
            std::hint::black_box(&mut words);
            assert_eq!(find(), Some(part.0 + 8 * i));
            words[i] = before;
            std::hint::black_box(&mut words);
        }
        assert_eq!(find(), None);
    }

    #[cfg(not(sim))]
    #[test]
    fn a_thread_local_lies_in_its_threads_memory() {
        thread_local! {
            static LOCAL: std::cell::Cell<u32> = const { std::cell::Cell::new(1) };
        }
        let check = || {
            let bounds = thread::tls_bounds(context::exact_stack_pointer());
            let local = LOCAL.with(|local| ptr::from_ref(local) as usize);
            // errno is a library's thread-local.
            // SAFETY: it has no preconditions.
            let errno = unsafe { libc::__errno_location() } as usize;
            for address in [local, errno] {
                assert!(bounds.iter().any(|(low, high)| (*low..*high).contains(&address)));
            }
            let on_the_heap = Box::new(1u8);
            let address = ptr::from_ref(&*on_the_heap) as usize;
            assert!(bounds.iter().all(|(low, high)| !(*low..*high).contains(&address)));
        };
        check();
        let started = thread::start("tls".into(), 256 << 10, check);
        started.unwrap().join().unwrap();
    }
}
