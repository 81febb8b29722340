//! Kernel images for tests that need real ones.

use guardrail_binfmt::KernelImage;
use std::path::PathBuf;

/// The images that `GUARDRAIL_TEST_KERNELS` names, separated by colons. Tests that call this are ignored by
/// default. With `--ignored` they fail where the variable is missing.
pub fn images() -> Vec<KernelImage> {
    let list = std::env::var_os("GUARDRAIL_TEST_KERNELS")
        .expect("GUARDRAIL_TEST_KERNELS must name kernel images, separated by colons");
    let paths: Vec<PathBuf> =
        std::env::split_paths(&list).filter(|path| !path.as_os_str().is_empty()).collect();
    assert!(!paths.is_empty(), "GUARDRAIL_TEST_KERNELS names no kernel image");
    paths
        .iter()
        .map(|path| KernelImage::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
        .collect()
}
