//! Decides which code is instrumented.

use super::modules::Modules;
use guardrail_trace::client::Scope;

/// Start of kernel addresses on x86-64.
const KERNEL: u64 = 0xffff_8000_0000_0000;

/// Whether the block at `addr` is in the scope.
pub(crate) fn holds(scope: &Scope, modules: &Modules, slide: Option<u64>, addr: u64) -> bool {
    if addr < KERNEL {
        return false;
    }
    match scope {
        Scope::Kernel => true,
        Scope::Modules(_) => modules.in_scope(addr),
        Scope::Functions { ranges, .. } => {
            let Some(slide) = slide else { return false };
            let link = addr.wrapping_sub(slide);
            let next = ranges.partition_point(|range| range.0 <= link);
            (next > 0 && link < ranges[next - 1].1) || modules.in_scope(addr)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_code_is_in_no_scope() {
        let modules = Modules::default();
        assert!(!holds(&Scope::Kernel, &modules, Some(0), 0x40_0000));
        assert!(holds(&Scope::Kernel, &modules, None, 0xffff_ffff_8100_0000));
    }

    #[test]
    fn ranges_of_functions_move_with_the_kernel() {
        let scope = Scope::Functions {
            ranges: vec![(0xffff_ffff_8100_0000, 0xffff_ffff_8100_0040)],
            patterns: Vec::new(),
        };
        let modules = Modules::default();
        assert!(holds(&scope, &modules, Some(0x20_0000), 0xffff_ffff_8120_003f));
        assert!(!holds(&scope, &modules, Some(0x20_0000), 0xffff_ffff_8120_0040));
        assert!(!holds(&scope, &modules, None, 0xffff_ffff_8100_0000));
    }
}
