//! Vector, mmx, mask and x87 registers: moves by byte, arithmetic all or nothing. Also the rule for all
//! instructions that have no rule of their own.

use super::bits::{Bits, mask};
use super::exec::Machine;
use super::insn::{Generic, Opnd};
use super::regs::{VECTORS, Vector};
use super::{Flags, Memory, Value};

/// The mask of the low `size` of up to 64 bytes.
fn byte_mask(size: u8) -> u64 {
    if size >= 64 { u64::MAX } else { (1 << size) - 1 }
}

/// One bit for each byte that has an undefined bit.
fn to_bytes(bits: u64) -> u64 {
    (0..8).filter(|i| bits >> (i * 8) & 0xff != 0).fold(0, |bytes, i| bytes | 1 << i)
}

/// Eight bits for each undefined byte.
fn to_bits(bytes: u64) -> u64 {
    (0..8).filter(|i| bytes >> i & 1 != 0).fold(0, |bits, i| bits | 0xff << (i * 8))
}

impl<M: Memory> Machine<'_, '_, M> {
    pub(super) fn read_vector(&self, n: u8, size: u8) -> Bits {
        let vector = self.regs.vec[usize::from(n) % VECTORS];
        Bits::with_undef(to_bits(vector.undef), size, vector.origin)
    }

    pub(super) fn write_vector(&mut self, n: u8, size: u8, bits: Bits) {
        self.set_vector(n, size, Vector { undef: to_bytes(bits.undef), origin: bits.origin }, true);
    }

    fn set_vector(&mut self, n: u8, size: u8, new: Vector, zero: bool) {
        let slot = &mut self.regs.vec[usize::from(n) % VECTORS];
        let m = byte_mask(size);
        let undef = new.undef & m | if zero { 0 } else { slot.undef & !m };
        let origin = match (new.undef & m, undef) {
            (_, 0) => 0,
            (0, _) => slot.origin,
            _ => new.origin,
        };
        *slot = Vector { undef, origin };
        self.regs.vec_dirty |= undef != 0;
    }

    /// Loads a vector operand, which the log may hold in pieces.
    fn load_bytes(&mut self, size: u8) -> Vector {
        let mut out = Vector::default();
        let mut at = 0u8;
        while at < size {
            let Some(access) = self.log.take(self.insn.index, false) else { break };
            let value = self.load_access(access);
            if value.undef != 0 {
                let bytes = if access.size > 8 { value.undef } else { to_bytes(value.undef) };
                out.undef |= bytes.checked_shl(u32::from(at)).unwrap_or(0);
                out.origin = value.origin;
            }
            at = at.saturating_add(access.size.max(1));
        }
        out
    }

    fn store_bytes(&mut self, size: u8, vector: Vector) {
        let mut at = 0u8;
        while at < size {
            let Some(access) = self.log.take(self.insn.index, true) else { break };
            self.check_address(access);
            let bytes = vector.undef.checked_shr(u32::from(at)).unwrap_or(0) & byte_mask(access.size);
            let undef = if access.size > 8 { bytes } else { to_bits(bytes) & mask(access.size) };
            let origin = if undef != 0 { vector.origin } else { 0 };
            self.mem.store(&self.ctx, access, Value { undef, origin });
            at = at.saturating_add(access.size.max(1));
        }
    }

    pub(super) fn vector_move(&mut self, bytes: u8, zero: bool) {
        let value = match self.insn.src {
            Opnd::Mem => self.load_bytes(bytes),
            Opnd::Vec(n) => self.regs.vec[usize::from(n) % VECTORS],
            other => {
                let bits = self.read(other, bytes);
                Vector { undef: to_bytes(bits.undef), origin: bits.origin }
            }
        };
        match self.insn.dst {
            Opnd::Mem => self.store_bytes(bytes, value),
            Opnd::Vec(n) => self.set_vector(n, bytes, value, zero),
            other => self.write(other, bytes, Bits::with_undef(to_bits(value.undef), bytes, value.origin)),
        }
    }

    pub(super) fn cmpxchg_pair(&mut self, half: u8) {
        let pair = |low: Bits, high: Bits| Vector {
            undef: to_bytes(low.undef & mask(half)) | to_bytes(high.undef & mask(half)) << half,
            origin: if low.undef & mask(half) != 0 { low.origin } else { high.origin },
        };
        let old = self.load_bytes(half * 2);
        let expected = pair(self.regs.gpr[0], self.regs.gpr[2]);
        let new = pair(self.regs.gpr[3], self.regs.gpr[1]);
        let undefined = old.undef | expected.undef != 0;
        let origin = if old.undef != 0 { old.origin } else { expected.origin };
        self.set_flags(Flags::ZF, if undefined { Flags::ZF } else { 0 }, origin);
        let stored = if undefined { Vector { undef: u64::MAX, origin } } else { new };
        self.store_bytes(half * 2, stored);
        for reg in [0, 2] {
            // On success the register keeps all its bits.
            let old = self.regs.gpr[reg];
            let undef = if undefined { mask(half) } else { 0 };
            self.regs.gpr[reg] = Bits {
                undef: undef | old.undef & !mask(half),
                known: 0,
                value: 0,
                origin: if undefined { origin } else { old.origin },
            };
        }
    }

    /// Makes every destination undefined where any source is.
    pub(super) fn generic(&mut self, generic: &Generic) {
        let index = self.insn.index;
        if generic.unknown {
            self.mem.unknown(&self.ctx, self.insn.mnemonic);
        }
        let mut undefined = false;
        let mut origin = 0;
        while let Some(access) = self.log.take(index, false) {
            let value = self.load_access(access);
            if value.undef != 0 {
                (undefined, origin) = (true, value.origin);
            }
        }
        if generic.flags_read & self.regs.flags != 0 {
            (undefined, origin) = (true, self.regs.flags_origin);
        }
        for used in &generic.reads {
            let bits = match used.opnd {
                Opnd::Vec(n) => {
                    let vector = self.regs.vec[usize::from(n) % VECTORS];
                    Bits::with_undef(vector.undef & byte_mask(used.size), 8, vector.origin)
                }
                other => self.read(other, used.size),
            };
            if !bits.is_defined() {
                (undefined, origin) = (true, bits.origin);
            }
        }
        if generic.zero {
            (undefined, origin) = (false, 0);
        }
        let undef = if undefined { u64::MAX } else { 0 };
        while let Some(access) = self.log.take(index, true) {
            self.check_address(access);
            let undef =
                if access.size > 8 { undef & byte_mask(access.size) } else { undef & mask(access.size) };
            self.mem.store(&self.ctx, access, Value { undef, origin });
        }
        self.set_flags(generic.flags_written, if undefined { Flags::ALL } else { 0 }, origin);
        for used in &generic.writes {
            if used.keep && !undefined {
                // The kept part of the destination keeps its definedness, but its value is no longer known.
                if let Opnd::Reg(n) = used.opnd {
                    let slot = &mut self.regs.gpr[usize::from(n & 15)];
                    (slot.known, slot.value) = (0, 0);
                }
                continue;
            }
            match used.opnd {
                Opnd::Vec(n) => self.set_vector(n, used.size, Vector { undef, origin }, false),
                other => self.write(other, used.size, Bits::with_undef(undef, used.size, origin)),
            }
        }
    }
}
