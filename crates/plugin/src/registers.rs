//! The guest's registers of one vCPU.
//!
//! A register read through QEMU uses its debugger interface. It costs about as much as the rest of a
//! callback.
//!
//! QEMU keeps a vCPU's registers in one structure. When translated code calls back, a host register
//! holds the structure's address. So the plugin reads the structure directly, after a proof: a word must
//! equal QEMU's value many times, while the value changes. It compares the word again from time to time.
//! Where anything differs, QEMU reads the register as before.

use crate::ffi::{self, GByteArray, Register};
use std::ffi::CStr;
use std::ptr::NonNull;

/// Indexes of the registers that plugins read: general registers have their hardware numbers, then
/// follow these.
/// RAX holds the result of a call.
pub const RAX: usize = 0;
/// The fourth argument of a call.
pub const RCX: usize = 1;
/// The third argument of a call.
pub const RDX: usize = 2;
/// The stack pointer.
pub const RSP: usize = 4;
/// The frame pointer, or an ordinary general register.
pub const RBP: usize = 5;
/// The second argument of a call.
pub const RSI: usize = 6;
/// The first argument of a call.
pub const RDI: usize = 7;
/// The flags. The arithmetic flags may be stale.
pub const RFLAGS: usize = 16;
/// Base address of the GS segment, which holds per-CPU variables.
pub const GS_BASE: usize = 17;
/// The faulting address of the last page fault.
pub const CR2: usize = 18;
const COUNT: usize = 19;
const NAMES: [&str; COUNT] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
    "r15", "eflags", "gs_base", "cr2",
];

/// The interrupt flag in RFLAGS.
pub const INTERRUPT_FLAG: u64 = 1 << 9;
/// The arithmetic flags in RFLAGS. QEMU keeps them elsewhere, and no caller here reads them.
const ARITHMETIC_FLAGS: u64 = 0x8d5;

/// More than the number of kinds of lazily computed flags in QEMU.
const MAX_CC_OP: u32 = 128;

/// Words of the structure to search for registers without a fixed offset.
const WORDS: usize = 192;
/// Equal values before a register is read directly.
const PROOFS: u32 = 64;
/// Direct reads between two comparisons with QEMU's value.
const RECHECK: u32 = 1 << 14;

/// State of the arithmetic flags before an instruction of a block. Within a block QEMU keeps them in a
/// form that only the block's own code knows. So a vCPU cannot simply begin a new block there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flags {
    /// Unchanged since the start of the block: a new block can begin.
    Untouched,
    /// QEMU would compute wrong flags, but no later instruction needs them.
    Dead,
    /// QEMU would compute wrong flags, and a later instruction needs them.
    Live,
}

/// The registers of one vCPU.
pub struct Registers {
    handles: [*mut Register; COUNT],
    buf: *mut GByteArray,
    /// Host address of the structure with the registers.
    env: Option<NonNull<u64>>,
    /// Index of each register's word in it, once proved.
    places: [Option<u8>; COUNT],
    proofs: [Proof; COUNT],
    until_recheck: u32,
    /// True once a comparison failed. Then no register is read directly anymore.
    refuted: bool,
}

/// Evidence for the index of a register's word.
#[derive(Clone, Copy)]
struct Proof {
    /// Words that held its value each time, as a bit set.
    words: [u64; WORDS / 64],
    seen: u32,
    changes: u32,
    last: u64,
}

impl Proof {
    fn new(register: usize) -> Proof {
        // The structure begins with the general registers, in the order of their numbers.
        let mut words = [0; WORDS / 64];
        match register {
            0..16 => words[0] = 1 << register,
            RFLAGS | GS_BASE => words = [u64::MAX; WORDS / 64],
            _ => {}
        }
        Proof { words, seen: 0, changes: 0, last: 0 }
    }

    /// Compares a value from QEMU with the structure, which `word` reads. Returns the index of the
    /// register's word, once it is proved.
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
        // The GS base keeps its value while the kernel runs, and no other word resembles it.
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
    /// Makes registers without handles.
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

    /// Looks up QEMU's handles of all registers. The error is the name of one that QEMU does not have.
    /// Only the vCPU's initialization callback may call this.
    pub fn find(&mut self) -> Result<(), &'static str> {
        // SAFETY: called in a vCPU's context. This function owns the array of descriptors and frees it.
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

    /// Whether `env` is this vCPU's structure. `None` before that is known.
    #[inline]
    pub fn is_at(&self, env: *const u64) -> Option<bool> {
        self.env.map(|known| std::ptr::eq(known.as_ptr(), env))
    }

    /// Notes that translated code of this vCPU uses the structure `env`. After atomic accesses QEMU's
    /// own code calls back, and then `env` may be any value.
    pub fn learn(&mut self, env: *mut u64) {
        if self.env.is_none() && !self.refuted && env.is_aligned() && is_readable(env) {
            self.env = NonNull::new(env);
        }
    }

    /// Reads a register. Only for callbacks that may read registers.
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

    /// Stops direct reads, because the structure held another value than QEMU.
    fn refute(&mut self) {
        self.refuted = true;
        self.env = None;
        self.places = [None; COUNT];
    }

    /// Reads a register from the structure, once its index is proved. In callbacks that may not read
    /// registers, the value may be older. It then dates from the last point where QEMU stored it: the
    /// start of the block, or the current memory access.
    #[inline]
    pub fn peek(&self, register: usize) -> Option<u64> {
        Some(word_of(self.env?, usize::from(self.places[register]?)))
    }

    /// Reads a register through QEMU, for the vCPU that runs now. 0 where QEMU does not return it.
    pub fn ask(&mut self, register: usize) -> u64 {
        self.try_ask(register).unwrap_or(0)
    }

    /// Like [`ask`](Self::ask), but `None` where QEMU does not return the register in this callback.
    fn try_ask(&mut self, register: usize) -> Option<u64> {
        let handle = self.handles[register];
        if handle.is_null() {
            return None;
        }
        // SAFETY: handle and buffer are valid. QEMU appends the value to the buffer, which was emptied,
        // and GLib keeps `len` bytes at `data`.
        unsafe {
            (*self.buf).len = 0;
            if !ffi::qemu_plugin_read_register(handle, self.buf) {
                return None;
            }
            Some(word(std::slice::from_raw_parts((*self.buf).data, (*self.buf).len as usize)))
        }
    }
}

impl Registers {
    /// Whether the vCPU can leave the block before its end.
    ///
    /// Where no later instruction needs the flags, this also settles QEMU's record of them. That record
    /// says in part where the flags are, but the block has not stored it completely yet. Without the
    /// change, QEMU would take an operand of an addition for flags, even for non-arithmetic ones.
    pub fn can_leave(&mut self, flags: Flags) -> bool {
        match flags {
            Flags::Untouched => true,
            Flags::Dead => self.settle_flags().is_some(),
            Flags::Live => false,
        }
    }

    /// Masks `cc_src`, so that it holds only arithmetic flags. After rflags QEMU keeps `cc_dst`,
    /// `cc_src`, `cc_src2`, and `cc_op` with `df` (`CPUX86State` in target/i386/cpu.h). Of these only
    /// `cc_src` may hold flags directly.
    fn settle_flags(&mut self) -> Option<()> {
        let (env, at) = (self.env?, usize::from(self.places[RFLAGS]?));
        let (cc_src, cc_op_and_df) = (at + 2, word_of(env, at + 4));
        let (cc_op, df) = (cc_op_and_df as u32, (cc_op_and_df >> 32) as i32);
        if cc_op >= MAX_CC_OP || !matches!(df, 1 | -1) {
            return None;
        }
        let value = word_of(env, cc_src) & ARITHMETIC_FLAGS;
        // SAFETY: as in `word_of`; translated code has stored its host registers and does not continue
        // from here.
        unsafe { env.as_ptr().add(cc_src).write_volatile(value) };
        Some(())
    }

    /// Sets a register. Only for callbacks that may write registers, and that leave by setting the
    /// program counter.
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

/// Whether all words can be read that a proof looks at.
#[cold]
fn is_readable(env: *const u64) -> bool {
    let mut copy = [0u64; WORDS];
    let size = size_of_val(&copy);
    let to = libc::iovec { iov_base: copy.as_mut_ptr().cast(), iov_len: size };
    let from = libc::iovec { iov_base: env.cast_mut().cast(), iov_len: size };
    // SAFETY: the kernel checks that the bytes can be read, and copies exactly as many as the buffer
    // holds.
    unsafe { libc::process_vm_readv(libc::getpid(), &to, 1, &from, 1, 0) == size as isize }
}

/// Decodes at most eight little-endian bytes.
pub fn word(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

/// Reads a word of a vCPU's structure.
#[inline]
fn word_of(env: NonNull<u64>, at: usize) -> u64 {
    // SAFETY: the pointer came from translated code, which keeps its vCPU's structure of many kilobytes
    // there as long as the process lives. This thread runs that vCPU, or all vCPUs, so no other thread
    // writes now. Where the pointer came from other code of QEMU, the words could be read when it was
    // learned.
    unsafe { env.as_ptr().add(at).read_volatile() }
}

/// Defines a callback that also gets the structure of its vCPU's registers, and the function that QEMU
/// calls.
///
/// On x86-64 hosts translated code keeps the structure's address in rbp (`TCG_AREG0` in QEMU's
/// tcg/x86_64), which calls preserve. Any value there is only used after a proof.
#[macro_export]
macro_rules! with_env {
    ($(#[$doc:meta])* $entry:ident => $callback:path) => {
        $(#[$doc])*
        #[unsafe(naked)]
        pub extern "C" fn $entry(index: std::ffi::c_uint, data: *mut std::ffi::c_void) {
            // The third argument is the host's rbp. The others are unchanged.
            std::arch::naked_asm!("mov rdx, rbp", "jmp {callback}", callback = sym $callback)
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_little_endian_and_zero_extended() {
        assert_eq!(word(&[0x34, 0x12]), 0x1234);
        assert_eq!(word(&[1, 0, 0, 0, 0, 0, 0, 0x80, 9]), 0x8000_0000_0000_0001);
        assert_eq!(word(&[]), 0);
    }

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
        // Two words hold the value, and either may be another variable.
        assert_eq!(
            prove(GS_BASE, std::iter::repeat_n(base, 100), |v, at| if at > 188 { v } else { 0 }),
            None
        );
        let flags = (0..100u64).map(|i| 2 | (i & 1) << 9 | (i & 3) << 6);
        // The arithmetic flags may differ, because QEMU keeps them elsewhere.
        assert_eq!(prove(RFLAGS, flags, |v, at| if at == 17 { v & !0x8d5 | 0x40 } else { 0x202 }), Some(17));
    }
}
