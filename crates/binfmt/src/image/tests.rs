//! Kernels made from scratch.

use super::kernel::{HEAD, VERSION, bz_image, kernel, module, packed};
use super::*;
use crate::ModuleImage;
use crate::kallsyms::tests::tables::{BANNER, LAYOUTS, Layout, RODATA, TEXT, build};

fn check(image: &KernelImage, align: u64) {
    assert_eq!((image.release(), image.align()), ("6.1.0-9", align));
    assert_eq!(image.build_id(), Some("ab".repeat(20).as_str()));
    assert_eq!(image.address_of("_text"), Some(TEXT.0));
    assert_eq!(image.symbol_at(TEXT.0 + 0x1003).map(|located| located.name), Some("function_0"));
    assert_eq!(image.btf().member_offset("module", "a.b"), Some(0));
    assert_eq!(image.bytes_at(RODATA, 4), Some(&[0xcc; 4][..]));
    assert_eq!((image.bytes_at(TEXT.0, 1), image.bytes_at(RODATA - 1, 4)), (None, None));
    assert_eq!(image.address_of("linux_banner"), Some(BANNER));
    assert_eq!(image.bytes_at(BANNER, 64), Some(&VERSION[..]));
    assert!(image.is_text(TEXT.0) && !image.is_text(RODATA));
    assert_eq!(image.sections().next(), Some((".text", TEXT.0, TEXT.1 - TEXT.0)));
    assert_eq!(image.relocated_places(), [RODATA + 8]);
}

#[test]
fn a_kernel_is_read_in_each_form() {
    for layout in LAYOUTS {
        check(&KernelImage::parse("x", kernel(layout)).unwrap(), 0x20_0000);
    }
    let plain = kernel(Layout::Last);
    check(&KernelImage::parse("x", bz_image(&plain)).unwrap(), 0x40_0000);
    for (name, payload) in packed(&plain) {
        let image = KernelImage::parse("x", bz_image(&payload));
        check(&image.unwrap_or_else(|error| panic!("{name}: {error}")), 0x40_0000);
    }
}

/// A kernel in which bytes are replaced by as many others.
fn replaced(from: &[u8], to: &[u8]) -> String {
    let mut file = kernel(Layout::Last);
    let at = file.windows(from.len()).position(|bytes| bytes == from).expect("the kernel has these bytes");
    file[at..at + to.len()].copy_from_slice(to);
    KernelImage::parse("x", file).unwrap_err().to_string()
}

#[test]
fn what_a_kernel_was_built_without_is_named_by_its_option() {
    let said = |option: &str| {
        format!(
            "the kernel 6.1.0-9 was built without {option}; set what is missing in its .config, and build it again"
        )
    };
    assert_eq!(replaced(b".BTF\0", b".XTF\0"), said("type information (CONFIG_DEBUG_INFO_BTF)"));
    let tables = build(Layout::Last);
    assert_eq!(replaced(&tables, &vec![0; tables.len()]), said("symbols (CONFIG_KALLSYMS)"));
    // Where there is a table, it is the table that is damaged.
    let marked: Vec<u8> = tables.iter().map(|byte| byte ^ 0x55).collect();
    assert!(replaced(&tables[..64], &marked[..64]).contains("kallsyms"));
}

#[test]
fn damaged_images_are_errors_or_kernels_but_no_panics() {
    let plain = kernel(Layout::Last);
    let image = bz_image(&plain);
    for cut in (0..image.len()).step_by(997) {
        assert!(KernelImage::parse("x", image[..cut].to_vec()).is_err(), "{cut}");
    }
    let from = plain.len() - 1024;
    for at in (0..64).chain((64..from).step_by(1499)).chain(from..plain.len()) {
        let mut damaged = plain.clone();
        damaged[at] ^= 0x81;
        if let Ok(image) = KernelImage::parse("x", damaged) {
            let _ = (image.symbol_at(TEXT.0), image.bytes_at(RODATA, 64), image.relocated_places());
        }
    }
    for at in 0x1f0..0x250 {
        let mut damaged = image.clone();
        damaged[at] ^= 0xff;
        let _ = KernelImage::parse("x", damaged);
    }
    assert!(KernelImage::parse("x", image[..HEAD].to_vec()).is_err());
}

#[test]
fn a_module_has_what_the_kernel_reads_of_one() {
    let module = ModuleImage::parse("x", module()).unwrap();
    assert_eq!((module.name().as_str(), module.build_id()), ("tables", Some("ab".repeat(20))));
    assert_eq!(module.ex_table(), [(3, 4)]);
    let types = Btf::parse(module.btf_bytes().unwrap(), None).unwrap();
    assert_eq!(types.member_offset("bin_attribute", "attr.name"), Some(0));
    let constants: Vec<&[u8]> = module.constant_sections().map(|index| module.section_bytes(index)).collect();
    assert_eq!(constants, [b"%s: %d\n\0"]);
}
