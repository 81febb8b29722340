//! What must hold for every supported kernel.

mod common;

use guardrail_kernel::{SummaryTable, tracer_config};
use std::collections::BTreeMap;

#[test]
#[ignore = "needs kernel images: set GUARDRAIL_TEST_KERNELS"]
fn symbols_are_found_by_name_and_by_address() {
    for image in common::images() {
        let release = image.release();
        assert!(image.symbol_table().len() > 50_000, "{release}");
        assert!(image.build_id().is_some_and(|id| id.len() == 40), "{release}");
        for name in ["kfree", "vfree", "__kmem_cache_create", "schedule"] {
            let Some(address) = image.address_of(name) else { continue };
            let located = image.symbol_at(address + 1).unwrap();
            assert_eq!((located.name, located.offset), (name, 1), "{release}");
            assert!((16..0x4000).contains(&located.size), "{release}: {name} has {} bytes", located.size);
            assert!(image.is_text(address) && image.bytes_at(address, 16).is_some(), "{release}: {name}");
        }
    }
}

#[test]
#[ignore = "needs kernel images: set GUARDRAIL_TEST_KERNELS"]
fn the_tables_rows_are_resolved_whole() {
    let written = written_effects();
    let mut short = Vec::new();
    for image in common::images() {
        let table = SummaryTable::for_image(&image);
        for (name, row) in table.rows() {
            let Some(&wanted) = written.get(name.strip_suffix("_noprof").unwrap_or(name)) else { continue };
            if row.summary.effects.len() != wanted {
                short.push(format!("{}: {name}: {:?}", image.release(), row.summary.effects));
            }
        }
    }
    assert!(short.is_empty(), "effects got lost:\n{}", short.join("\n"));
}

#[test]
#[ignore = "needs kernel images: set GUARDRAIL_TEST_KERNELS"]
fn every_allocator_has_a_row_that_some_kernel_has() {
    let images = common::images();
    let tables: Vec<SummaryTable> = images.iter().map(SummaryTable::for_image).collect();
    for name in ["kfree", "kvfree", "vfree", "kmem_cache_free", "free_pages", "dma_free_attrs"] {
        for (image, table) in images.iter().zip(&tables) {
            assert!(table.row(name).is_some_and(|row| row.everywhere), "{}: {name}", image.release());
        }
    }
    let nowhere = tables[0].absent().iter().filter(|name| tables.iter().all(|t| t.absent().contains(name)));
    println!("rows that no kernel here has: {:?}", nowhere.collect::<Vec<_>>());
}

#[test]
#[ignore = "needs kernel images: set GUARDRAIL_TEST_KERNELS"]
fn the_plan_is_complete_and_consistent() {
    for image in common::images() {
        let release = image.release();
        let table = SummaryTable::for_image(&image);
        let plan = tracer_config(&image, &table, &["e1000".to_owned()], "log").unwrap();
        assert!(plan.hooks.len() > 40, "{release}: {} hooks", plan.hooks.len());
        let text = plan.kernel_text;
        for hook in &plan.hooks {
            assert!((text.0..text.1).contains(&hook.address), "{release}: {}", hook.name);
            let own = hook.returns.iter().any(|r| (r.0..r.1).contains(&hook.address));
            assert!(own, "{release}: the returns of {} leave out itself", hook.name);
            assert!(usize::from(hook.args) + hook.derefs.len() <= 255, "{release}: {}", hook.name);
        }
        assert_eq!(
            image.bytes_at(plan.probe.address, plan.probe.bytes.len() as u64),
            Some(&plan.probe.bytes[..])
        );
        assert!(plan.probe.align.is_power_of_two());
        assert!(plan.return_thunks.len() > 1 && plan.indirect_thunks.len() > 14, "{release}");
        assert!(plan.task.comm > plan.task.pid && plan.layout.regions.len() >= 2, "{release}");
        // Per-CPU places lie in the first pages of the area, or are addresses of the image.
        assert_eq!(plan.per_cpu.relative, plan.per_cpu.current >= text.0, "{release}");
    }
}

/// How many effects each line of the table states, by function.
fn written_effects() -> BTreeMap<&'static str, usize> {
    let mut written = BTreeMap::new();
    for line in include_str!("../summaries.txt").lines().filter(|line| !line.starts_with('#')) {
        let Some((head, effects)) = line.split_once("):") else { continue };
        let names = head.split_once('(').unwrap().0;
        // A seventh parameter is on the stack, where no effect reaches it.
        if head.matches(',').count() - names.matches(',').count() > 5 {
            continue;
        }
        let count = effects.split(';').filter(|effect| effect.trim() != "nothing").count();
        written.extend(names.split(',').map(|name| (name.trim(), count)));
    }
    written
}
