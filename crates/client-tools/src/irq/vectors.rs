//! Finds the interrupt vector of a kernel entry.

use guardrail_client_api::binfmt::KernelImage;
use guardrail_client_api::iced_x86::{Decoder, DecoderOptions, Mnemonic};
use std::sync::{Arc, OnceLock};

/// Exception vectors of the processor (Intel SDM, volume 3, table 6-1), by the names of Linux's entries.
const EXCEPTIONS: [(&str, u8); 21] = [
    ("divide_error", 0),
    ("debug", 1),
    ("nmi", 2),
    ("int3", 3),
    ("overflow", 4),
    ("bounds", 5),
    ("invalid_op", 6),
    ("device_not_available", 7),
    ("double_fault", 8),
    ("coproc_segment_overrun", 9),
    ("invalid_tss", 10),
    ("segment_not_present", 11),
    ("stack_segment", 12),
    ("general_protection", 13),
    ("page_fault", 14),
    ("spurious_interrupt_bug", 15),
    ("coprocessor_error", 16),
    ("alignment_check", 17),
    ("machine_check", 18),
    ("simd_coprocessor_error", 19),
    ("control_protection", 21),
];
/// Vectors of Linux for interrupts between CPUs, and from a CPU to itself
/// (arch/x86/include/asm/irq_vectors.h).
const SYSTEM: [(&str, u8); 12] = [
    ("spurious_apic_interrupt", 0xff),
    ("error_interrupt", 0xfe),
    ("reschedule_ipi", 0xfd),
    ("call_function", 0xfc),
    ("call_function_single", 0xfb),
    ("thermal", 0xfa),
    ("threshold", 0xf9),
    ("reboot", 0xf8),
    ("x86_platform_ipi", 0xf7),
    ("irq_work", 0xf6),
    ("deferred_error", 0xf4),
    ("apic_timer_interrupt", 0xec),
];
/// Bytes of an entry that are decoded: a landing pad and a push.
const ENTRY: u64 = 16;

/// The kernel's interrupt entries.
pub struct Vectors {
    image: Arc<KernelImage>,
    /// Start of the entries of device interrupts; the inner value is `None` where the kernel has no such
    /// symbol.
    devices: OnceLock<Option<u64>>,
    slide: OnceLock<u64>,
}

impl Vectors {
    /// Reads the entries of a kernel image.
    pub fn of(image: Arc<KernelImage>) -> Vectors {
        Vectors { image, devices: OnceLock::new(), slide: OnceLock::new() }
    }

    /// Sets the KASLR slide.
    pub fn set_slide(&self, slide: Option<u64>) {
        if let Some(slide) = slide {
            self.slide.get_or_init(|| slide);
        }
    }

    /// The vector of the entry at a guest virtual address.
    pub fn of_entry(&self, entry: u64) -> Option<u8> {
        let link = entry.wrapping_sub(*self.slide.get()?);
        let name = self.image.symbol_at(link)?.name;
        let by_name = |prefix: &str, list: &[(&str, u8)]| {
            let name = name.strip_prefix(prefix)?;
            list.iter().find(|known| known.0 == name).map(|known| known.1)
        };
        by_name("asm_exc_", &EXCEPTIONS).or_else(|| by_name("asm_sysvec_", &SYSTEM)).or_else(|| {
            let devices = *self.devices.get_or_init(|| self.image.address_of("irq_entries_start"));
            (devices.is_some_and(|start| link.wrapping_sub(start) < 256 * ENTRY))
                .then(|| self.pushed(link))
                .flatten()
        })
    }

    /// The number that an entry pushes.
    fn pushed(&self, link: u64) -> Option<u8> {
        let bytes = self.image.bytes_at(link, ENTRY)?;
        pushed(bytes)
    }
}

fn pushed(bytes: &[u8]) -> Option<u8> {
    let insns = Decoder::new(64, bytes, DecoderOptions::NONE).into_iter().take(2);
    insns.into_iter().find(|insn| insn.mnemonic() == Mnemonic::Push).and_then(|insn| {
        // The number is sign-extended, and the kernel uses its low byte.
        insn.try_immediate(0).ok().map(|value| value as u8)
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn entries_push_their_vectors() {
        assert_eq!(super::pushed(&[0x6a, 0x21, 0xe9, 0, 0, 0, 0]), Some(0x21));
        assert_eq!(super::pushed(&[0xf3, 0x0f, 0x1e, 0xfa, 0x6a, 0x85, 0xe9, 0, 0, 0, 0]), Some(0x85));
        assert_eq!(super::pushed(&[0x90, 0x90]), None);
    }
}
