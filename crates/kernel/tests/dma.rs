//! The DMA table on every supported kernel.

mod common;

use guardrail_kernel::SummaryTable;
use guardrail_knowledge::effect::Effect;
use guardrail_knowledge::table::Kind;

#[test]
#[ignore = "needs kernel images: set GUARDRAIL_TEST_KERNELS"]
fn dma_functions_are_watched_with_their_lists() {
    let written: Vec<(&str, bool)> = Kind::Dma
        .rows()
        .flat_map(|row| row.names.clone().into_iter().map(move |name| (name, row.is_everywhere())))
        .collect();
    for image in common::images() {
        let release = image.release();
        let table = SummaryTable::for_image(&image);
        for &(name, everywhere) in &written {
            let Some(row) = table.row(name) else { continue };
            let ops = row.summary.effects.iter().filter(|effect| matches!(effect, Effect::Dma(_))).count();
            assert_eq!(ops, 1, "{release}: {name}");
            assert!(row.everywhere || !everywhere, "{release}: {name}");
            assert_eq!(row.lists.len(), usize::from(name.contains("_sg")), "{release}: {name}");
            assert!(row.lists.iter().all(|list| list.fields.len() == 5), "{release}: {name}");
        }
        for name in ["dma_map_page_attrs", "dma_unmap_page_attrs", "dma_map_sg_attrs", "dma_unmap_sg_attrs"] {
            assert!(table.row(name).is_some(), "{release}: {name}");
        }
        // The inline functions read a flag since 6.10.
        let bit = image.btf().byte_of_bit("device", "dma_skip_sync");
        let flag = image.btf().enum_value_in("struct_device_flags", "DEV_FLAG_DMA_SKIP_SYNC");
        let inline = table.row("__dma_sync_single_for_cpu").is_some();
        assert_eq!(bit.is_some() || flag.is_some(), inline, "{release}");
        assert_ne!(table.row("dma_sync_single_for_cpu").is_some(), inline, "{release}");
    }
}
