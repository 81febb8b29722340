//! Finds the KASLR slide.

use guardrail_trace::config::Probe;

/// Link-time start of the kernel image's mapping on x86-64.
const KERNEL_MAP: u64 = 0xffff_ffff_8000_0000;

/// The slide, if the block that begins at `vaddr` is the probe's. `read` reads the guest's bytes there,
/// and is called only where the address fits.
pub fn slide(probe: &Probe, vaddr: u64, read: impl FnOnce(usize) -> Option<Vec<u8>>) -> Option<u64> {
    if vaddr < KERNEL_MAP || probe.bytes.is_empty() {
        return None;
    }
    let slide = vaddr.wrapping_sub(probe.address);
    if slide & (probe.align.max(1) - 1) != 0 {
        return None;
    }
    (read(probe.bytes.len())? == probe.bytes).then_some(slide)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe() -> Probe {
        Probe { address: 0xffff_ffff_8100_0040, bytes: vec![0x55, 0x48, 0x89], align: 0x20_0000 }
    }

    #[test]
    fn the_slide_is_the_difference_to_the_link_address() {
        let found = slide(&probe(), 0xffff_ffff_9ac0_0040, |n| Some(vec![0x55, 0x48, 0x89][..n].to_vec()));
        assert_eq!(found, Some(0x19c0_0000));
        let found = slide(&probe(), 0xffff_ffff_8100_0040, |_| Some(vec![0x55, 0x48, 0x89]));
        assert_eq!(found, Some(0));
    }

    #[test]
    fn other_bytes_or_places_are_no_match() {
        assert_eq!(slide(&probe(), 0xffff_ffff_8100_0040, |_| Some(vec![0x55, 0x48, 0x88])), None);
        assert_eq!(slide(&probe(), 0xffff_ffff_8100_0040, |_| None), None);
        for vaddr in [0x100_0040, 0xffff_ffff_8100_0041, 0xffff_ffff_8110_0040] {
            assert_eq!(
                slide(&probe(), vaddr, |_| panic!("bytes are read only where the address fits")),
                None
            );
        }
    }
}
