//! The guest's registers, of one vCPU.
//!
//! Asking QEMU for a register goes through its debugger interface and costs about as much as all else that a callback does.
//! QEMU keeps the registers of a vCPU in one structure, and translated code has its address in a register of the host when
//! it calls back. So that place is read directly, once it has proved itself: a register is believed there only after
//! it was equal to what QEMU said many times, in changing values, and it is compared again now and then. Where anything
//! does not fit, QEMU is asked as before.

use crate::ffi::{self, GByteArray, Register};
use std::ffi::CStr;
use std::ptr::NonNull;

/// Registers that we read, by index: general registers by hardware number, then these.
/// The result of a call.
pub const RAX: usize = 0;
/// The fourth argument.
pub const RCX: usize = 1;
/// The third argument.
pub const RDX: usize = 2;
/// The stack pointer.
pub const RSP: usize = 4;
/// The frame pointer, or a general register like others.
pub const RBP: usize = 5;
/// The second argument.
pub const RSI: usize = 6;
/// The first argument.
pub const RDI: usize = 7;
/// The flags; the arithmetic ones may be stale.
pub const RFLAGS: usize = 16;
/// The base of the segment that holds per-CPU variables.
pub const GS_BASE: usize = 17;
/// The address of the last page fault.
pub const CR2: usize = 18;
const COUNT: usize = 19;
const NAMES: [&str; COUNT] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
    "r15", "eflags", "gs_base", "cr2",
];

/// The interrupt flag in RFLAGS.
pub const INTERRUPT_FLAG: u64 = 1 << 9;
/// The arithmetic flags, which QEMU keeps elsewhere; nobody here asks for them.
const ARITHMETIC_FLAGS: u64 = 0x8d5;

/// More than the kinds of lazily computed flags that QEMU knows.
const MAX_CC_OP: u32 = 128;

/// Words of the structure that are searched for the registers whose place in it is not fixed.
const WORDS: usize = 192;
/// Equal values before a register is read directly.
const PROOFS: u32 = 64;
/// Direct reads between two comparisons.
const RECHECK: u32 = 1 << 14;

/// What the arithmetic flags are before an instruction of a block. Within a block QEMU keeps them aside in a form that only the
/// block's own code knows, so a vCPU cannot just begin a new block there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flags {
    /// As they were at the start of the block: a new block can begin.
    Untouched,
    /// Other than what QEMU would believe, and not needed by what follows.
    Dead,
    /// Other than what QEMU would believe, and needed.
    Live,
}

/// One vCPU's registers.
pub struct Registers {
    handles: [*mut Register; COUNT],
    buf: *mut GByteArray,
    /// The structure that has them.
    env: Option<NonNull<u64>>,
    /// The word in it, once proved.
    places: [Option<u8>; COUNT],
    proofs: [Proof; COUNT],
    until_recheck: u32,
    /// It was wrong once: nothing is read directly anymore.
    refuted: bool,
}

/// What speaks for the place of a register.
#[derive(Clone, Copy)]
struct Proof {
    /// Words that held its value each time.
    words: [u64; WORDS / 64],
    seen: u32,
    changes: u32,
    last: u64,
}

impl Proof {
    fn new(register: usize) -> Proof {
        // The general registers come first, in the order of their numbers.
        let mut words = [0; WORDS / 64];
        match register {
            0..16 => words[0] = 1 << register,
            RFLAGS | GS_BASE => words = [u64::MAX; WORDS / 64],
            _ => {}
        }
        Proof { words, seen: 0, changes: 0, last: 0 }
    }

    /// Takes a value that QEMU told; `word` reads the structure. The place, where it is proved now.
    fn take(&mut self, register: usize, value: u64, word: impl Fn(usize) -> u64) -> Option<u8> {
        let (mut found, mut left) = (0, 0u32);
        for at in 0..WORDS {
            let bit = 1 << (at % 64);
            if self.words[at / 64] & bit == 0 {
                continue;
            }
            if same(register, word(at), value) {
                (found, left) = (at, left + 1);
            } else {
                self.words[at / 64] &= !bit;
            }
        }
        self.seen = self.seen.saturating_add(1);
        if value != self.last {
            (self.changes, self.last) = (self.changes.saturating_add(1), value);
        }
        // The GS base stays what it is while the kernel runs, and looks like nothing else.
        let changes = if register == GS_BASE { 1 } else { 3 };
        (left == 1 && self.seen >= PROOFS && self.changes >= changes).then_some(found as u8)
    }
}

fn same(register: usize, word: u64, value: u64) -> bool {
    match register {
        RFLAGS => (word ^ value) & !ARITHMETIC_FLAGS == 0,
        _ => word == value,
    }
}

impl Registers {
    /// Registers that are not known yet.
    pub fn new(buf: *mut GByteArray) -> Registers {
        Registers {
            handles: [std::ptr::null_mut(); COUNT],
            buf,
            env: None,
            places: [None; COUNT],
            proofs: std::array::from_fn(Proof::new),
            until_recheck: RECHECK,
            refuted: false,
        }
    }

    /// Looks them up; the name of one that QEMU does not have is an error. Called from the vCPU's initialization callback,
    /// where QEMU allows it.
    pub fn find(&mut self) -> Result<(), &'static str> {
        // SAFETY: called in a vCPU's context; the array of descriptors is ours to free.
        unsafe {
            let array = ffi::qemu_plugin_get_registers();
            if array.is_null() {
                return Err(NAMES[0]);
            }
            let list = (*array).data.cast::<ffi::RegDescriptor>();
            for i in 0..(*array).len as usize {
                let descriptor = &*list.add(i);
                let name = CStr::from_ptr(descriptor.name);
                if let Some(at) = NAMES.iter().position(|n| n.as_bytes() == name.to_bytes()) {
                    self.handles[at] = descriptor.handle;
                }
            }
            ffi::g_array_free(array, 1);
        }
        match self.handles.iter().position(|r| r.is_null()) {
            Some(missing) => Err(NAMES[missing]),
            None => Ok(()),
        }
    }

    /// Whether translated code with this structure is this vCPU's; `None` before it is known.
    #[inline]
    pub fn is_at(&self, env: *const u64) -> Option<bool> {
        self.env.map(|known| std::ptr::eq(known.as_ptr(), env))
    }

    /// Translated code of this vCPU seems to have this structure. Where QEMU's own code calls, as it does after atomic accesses, it is anything.
    pub fn learn(&mut self, env: *mut u64) {
        if self.env.is_none() && !self.refuted && env.is_aligned() && is_readable(env) {
            self.env = NonNull::new(env);
        }
    }

    /// The value of a register. Only in callbacks that may read registers.
    #[inline]
    pub fn get(&mut self, register: usize) -> u64 {
        if let (Some(at), Some(env)) = (self.places[register], self.env)
            && self.until_recheck > 0
        {
            self.until_recheck -= 1;
            return word_of(env, usize::from(at));
        }
        self.ask_and_learn(register)
    }

    #[cold]
    fn ask_and_learn(&mut self, register: usize) -> u64 {
        let Some(value) = self.try_ask(register) else { return self.peek(register).unwrap_or(0) };
        let Some(env) = self.env else { return value };
        match self.places[register] {
            Some(at) if !same(register, word_of(env, usize::from(at)), value) => self.refute(),
            Some(_) => self.until_recheck = RECHECK,
            None => {
                self.places[register] = self.proofs[register].take(register, value, |at| word_of(env, at));
                if register < 16 && self.proofs[register].words == [0; WORDS / 64] {
                    self.refute();
                }
            }
        }
        value
    }

    /// The structure is not what it seemed.
    fn refute(&mut self) {
        self.refuted = true;
        self.env = None;
        self.places = [None; COUNT];
    }

    /// The value as the structure has it, where its place is proved. In callbacks that may not read registers it is that of the
    /// last point where QEMU had stored them: the begin of the block, or the memory access at hand.
    #[inline]
    pub fn peek(&self, register: usize) -> Option<u64> {
        Some(word_of(self.env?, usize::from(self.places[register]?)))
    }

    /// QEMU's answer, for the vCPU that runs now.
    pub fn ask(&mut self, register: usize) -> u64 {
        self.try_ask(register).unwrap_or(0)
    }

    /// The same; `None` where QEMU does not answer in this callback.
    fn try_ask(&mut self, register: usize) -> Option<u64> {
        let handle = self.handles[register];
        if handle.is_null() {
            return None;
        }
        // SAFETY: handle and buffer are valid; QEMU appends the value to the buffer, which we emptied, and GLib keeps `len`
        // bytes at `data`.
        unsafe {
            (*self.buf).len = 0;
            if !ffi::qemu_plugin_read_register(handle, self.buf) {
                return None;
            }
            Some(crate::cpu::word(std::slice::from_raw_parts((*self.buf).data, (*self.buf).len as usize)))
        }
    }
}

impl Registers {
    /// Whether the vCPU can leave the block before its end. Where the flags are not needed anymore, QEMU's notes of them are made
    /// such that no wrong ones come of them: they say in part where the flags are, and the block has not told yet where, so
    /// that an operand of some addition would be taken for flags, even for those that are no arithmetic ones.
    pub fn can_leave(&mut self, flags: Flags) -> bool {
        match flags {
            Flags::Untouched => true,
            Flags::Dead => self.settle_flags().is_some(),
            Flags::Live => false,
        }
    }

    /// Behind rflags QEMU keeps `cc_dst`, `cc_src`, `cc_src2`, `cc_op` with `df` (`CPUX86State` in target/i386/cpu.h), of which only
    /// `cc_src` may stand for flags as they are.
    fn settle_flags(&mut self) -> Option<()> {
        let (env, at) = (self.env?, usize::from(self.places[RFLAGS]?));
        let (cc_src, cc_op_and_df) = (at + 2, word_of(env, at + 4));
        let (cc_op, df) = (cc_op_and_df as u32, (cc_op_and_df >> 32) as i32);
        if cc_op >= MAX_CC_OP || !matches!(df, 1 | -1) {
            return None;
        }
        let value = word_of(env, cc_src) & ARITHMETIC_FLAGS;
        // SAFETY: as in `word_of`; translated code has stored what it had in host registers and does not go on from here.
        unsafe { env.as_ptr().add(cc_src).write_volatile(value) };
        Some(())
    }

    /// Sets a register. Only in callbacks that may write registers, and that leave by setting the program counter.
    pub fn set(&mut self, register: usize, value: u64) {
        let handle = self.handles[register];
        if handle.is_null() {
            return;
        }
        // SAFETY: handle and buffer are valid; GLib copies the bytes.
        unsafe {
            (*self.buf).len = 0;
            let bytes = value.to_le_bytes();
            ffi::g_byte_array_append(self.buf, bytes.as_ptr(), bytes.len() as u32);
            ffi::qemu_plugin_write_register(handle, self.buf);
        }
    }
}

/// Whether all words can be read that are looked at before a place is proved.
#[cold]
fn is_readable(env: *const u64) -> bool {
    let mut copy = [0u64; WORDS];
    let size = size_of_val(&copy);
    let to = libc::iovec { iov_base: copy.as_mut_ptr().cast(), iov_len: size };
    let from = libc::iovec { iov_base: env.cast_mut().cast(), iov_len: size };
    // SAFETY: the kernel copies so many bytes to where they have room, and looks itself whether they can be read.
    unsafe { libc::process_vm_readv(libc::getpid(), &to, 1, &from, 1, 0) == size as isize }
}

/// A word of a vCPU's structure.
#[inline]
fn word_of(env: NonNull<u64>, at: usize) -> u64 {
    // SAFETY: the pointer came from translated code, which keeps its vCPU's structure there, of many kilobytes, as long as
    // the process; this thread runs that vCPU or its sisters, so nobody writes there now. Where it came from other code of QEMU's,
    // the words could be read when it was learned.
    unsafe { env.as_ptr().add(at).read_volatile() }
}

/// Defines a callback that also gets the structure of its vCPU's registers, and the entry that QEMU calls.
///
/// On x86-64 hosts translated code keeps the structure's address in rbp (`TCG_AREG0` in QEMU's tcg/x86_64), which calls
/// preserve; whatever is there is only believed once it has proved itself.
#[macro_export]
macro_rules! with_env {
    ($(#[$doc:meta])* $entry:ident => $callback:path) => {
        $(#[$doc])*
        #[unsafe(naked)]
        pub extern "C" fn $entry(index: std::ffi::c_uint, data: *mut std::ffi::c_void) {
            // The third argument is the host's rbp; the others stay where they are.
            std::arch::naked_asm!("mov rdx, rbp", "jmp {callback}", callback = sym $callback)
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_no_structure() {
        let mut registers = Registers::new(std::ptr::null_mut());
        registers.learn(0x40 as *mut u64);
        assert_eq!(registers.is_at(0x40 as *const u64), None);
        let mut env = [0u64; WORDS];
        registers.learn(env.as_mut_ptr());
        assert_eq!(registers.is_at(env.as_ptr()), Some(true));
    }

    fn prove(
        register: usize,
        values: impl Iterator<Item = u64>,
        env: impl Fn(u64, usize) -> u64,
    ) -> Option<u8> {
        let mut proof = Proof::new(register);
        values.fold(None, |_, value| proof.take(register, value, |at| env(value, at)))
    }

    #[test]
    fn a_general_register_is_believed_in_its_place_only() {
        let many = || (0..100u64).map(|i| i << 20);
        assert_eq!(prove(3, many(), |value, at| if at == 3 { value } else { 0 }), Some(3));
        assert_eq!(prove(3, many(), |value, at| if at == 4 { value } else { 1 }), None);
        assert_eq!(prove(3, many().take(10), |value, _| value), None);
        assert_eq!(prove(3, std::iter::repeat_n(7, 1000), |value, _| value), None);
    }

    #[test]
    fn other_registers_are_searched_for() {
        let base = 0xffff_8880_7dc0_0000;
        assert_eq!(
            prove(GS_BASE, std::iter::repeat_n(base, 100), |v, at| if at == 77 { v } else { 0 }),
            Some(77)
        );
        // Two places that hold it: either may be another thing.
        assert_eq!(
            prove(GS_BASE, std::iter::repeat_n(base, 100), |v, at| if at > 188 { v } else { 0 }),
            None
        );
        let flags = (0..100u64).map(|i| 2 | (i & 1) << 9 | (i & 3) << 6);
        // The arithmetic flags differ, as they do.
        assert_eq!(prove(RFLAGS, flags, |v, at| if at == 17 { v & !0x8d5 | 0x40 } else { 0x202 }), Some(17));
    }
}
