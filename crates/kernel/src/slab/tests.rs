use super::*;
use crate::SummaryTable;
use guardrail_binfmt::KernelImage;
use std::path::PathBuf;

/// Images that happen to be on this machine. The tests of real kernels make sure that the images exist where
/// it counts.
fn images() -> Vec<KernelImage> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let Some(kernels) = cache.map(|cache| cache.join("guardrail/kernels")) else { return Vec::new() };
    let releases = std::fs::read_dir(kernels).into_iter().flatten().flatten();
    releases
        .filter_map(|release| {
            let name = release.file_name().into_string().ok()?;
            let places = [format!("boot/vmlinuz-{name}"), format!("usr/lib/modules/{name}/vmlinuz")];
            let image = places.iter().map(|place| release.path().join(place)).find(|path| path.is_file())?;
            KernelImage::open(&image).ok()
        })
        .collect()
}

#[test]
fn every_kernel_at_hand_tells_what_is_needed() {
    for image in images() {
        let release = image.release().to_owned();
        let layout = Layout::of(&image).unwrap_or_else(|e| panic!("{release}: {e}"));
        assert!(layout.cpu_slabs.is_some() != layout.sheaves.is_some(), "{release}: {layout:?}");
        let calls = calls(&image, &SummaryTable::for_image(&image));
        let has = |wanted: fn(&Call) -> bool| calls.iter().any(|named| wanted(&named.call));
        assert!(has(|call| matches!(call, Call::Pages { .. })), "{release}");
        assert!(has(|call| matches!(call, Call::PagesBulk { .. })), "{release}");
        assert!(has(|call| matches!(call, Call::Bulk { .. })), "{release}");
        assert!(has(|call| matches!(call, Call::BulkFree { .. })), "{release}");
        assert!(has(|call| matches!(call, Call::Vmalloc { .. })), "{release}");
        assert!(has(|call| matches!(call, Call::AreaNew)), "{release}");
        assert!(has(|call| matches!(call, Call::PerCpu { .. })), "{release}");
        assert!(has(|call| matches!(call, Call::Grow(_))), "{release}");
        for name in ["kfree", "kmem_cache_free"] {
            let named = calls.iter().find(|named| named.name == name).unwrap();
            assert!(matches!(named.call, Call::Free(_)), "{release}: {named:?}");
        }
        let own = own_code(&image);
        for name in ["___slab_alloc", "get_page_from_freelist", "vfree", "free_percpu"] {
            let at = image.address_of(name).unwrap();
            assert!(own.iter().any(|&(from, to)| (from..to).contains(&at)), "{release}: {name}");
        }
        let size: u64 = own.iter().map(|(from, to)| to - from).sum();
        assert!((0x8000..0x60000).contains(&size), "{release}: {size:#x} bytes of {} ranges", own.len());
        let strings = crate::string_code::ranges(&image);
        let read_ahead = |name: &str| {
            let at = image.address_of(name).unwrap();
            strings.iter().any(|&(from, to)| (from..to).contains(&at))
        };
        assert!(read_ahead("__d_lookup_rcu"), "{release}: {strings:x?}");
        assert!(!read_ahead("memcpy") && !read_ahead("kfree"), "{release}");
        assert!(strings.len() < 100, "{release}: {}", strings.len());
    }
}
