//! What must hold for every supported kernel.

mod common;

use guardrail_kernel::{SummaryTable, charts, tracer_config};
use guardrail_knowledge::chart::{Chart, parse};
use guardrail_knowledge::effect::{Effect, Key, LockKind, SyncOp};
use guardrail_knowledge::table::Kind;
use std::collections::{BTreeMap, BTreeSet};

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
    let [memory, sync, dma, reads] = [Kind::Memory, Kind::Locks, Kind::Dma, Kind::Reads].map(written_effects);
    let mut short = Vec::new();
    for image in common::images() {
        let table = SummaryTable::for_image(&image);
        for (name, row) in table.rows() {
            let plain = name.strip_suffix("_noprof").unwrap_or(name);
            let count = |sort: fn(&Effect) -> bool| row.summary.effects.iter().filter(|e| sort(e)).count();
            let found = [
                count(|e| !matches!(e, Effect::Sync(_) | Effect::Dma(_) | Effect::Format { .. })),
                count(|e| matches!(e, Effect::Sync(_))),
                count(|e| matches!(e, Effect::Dma(_))),
                // What a function with a row about memory reads stands there.
                count(|e| matches!(e, Effect::Format { .. }))
                    + if memory.contains_key(plain) {
                        0
                    } else {
                        count(|e| matches!(e, Effect::Read { .. }))
                    },
            ];
            for (table, found) in [&memory, &sync, &dma, &reads].into_iter().zip(found) {
                if table.get(plain).is_some_and(|&wanted| found != wanted) {
                    short.push(format!("{}: {name}: {:?}", image.release(), row.summary.effects));
                }
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
        let gate = guardrail_kernel::gate(&image, &[], 1);
        assert!(gate.probe.is_some() && gate.child_probe.is_some(), "{release}: {gate:?}");
        assert!(plan.task.comm > plan.task.pid && plan.layout.regions.len() >= 2, "{release}");
        // Per-CPU addresses lie in the first pages of the area, or in the image.
        assert_eq!(plan.per_cpu.relative, plan.per_cpu.current >= text.0, "{release}");
    }
}

/// Some callers of a callback belong to other versions or are inlined there, but each kernel has one of them.
#[test]
#[ignore = "needs kernel images: set GUARDRAIL_TEST_KERNELS"]
fn charts_name_functions_that_the_kernels_have() {
    let images = common::images();
    let mut called = BTreeSet::new();
    for image in &images {
        let release = image.release();
        let symbols: BTreeSet<&str> =
            image.symbols().map(|symbol| symbol.name.split('.').next().unwrap_or(symbol.name)).collect();
        let charts = charts::for_image(image);
        for chart in charts.iter() {
            let known = chart.calls.iter().filter(|call| image.address_of(&call.function).is_some());
            called.extend(known.map(|call| (chart.name.clone(), call.function.clone())));
            for call in &chart.calls {
                let mut others = chart.calls.iter().filter(|other| other.function == call.function);
                assert!(others.all(|other| other.keys == call.keys), "{release}: {}", call.function);
            }
            for callback in chart.callbacks.iter().filter(|_| !elsewhere(chart)) {
                let known = callback.from.is_empty()
                    || callback.from.iter().any(|from| symbols.contains(from.as_str()));
                assert!(known, "{release}: no caller of {} {}", chart.name, callback.name);
            }
        }
        let call = |chart: &str, function: &str| {
            let chart = charts.iter().find(|known| known.name == chart).unwrap();
            chart.calls.iter().find(|call| call.function == function).unwrap().keys.clone()
        };
        let key = |arg| Some(Key::Arg { arg, offset: 0 });
        // Delayed work is known by the work in it, at its beginning.
        assert_eq!(call("work", "queue_delayed_work_on"), [key(2), key(1)], "{release}");
        assert_eq!(call("irq", "request_threaded_irq"), [key(5), key(0)], "{release}");
        assert_eq!(call("irq", "disable_irq"), [None, key(0)], "{release}");
    }
    let written = written_calls();
    assert!(written.len() > 150, "only {} calls were found in the charts", written.len());
    let unknown: Vec<_> = written.difference(&called).collect();
    println!("calls that no kernel here has: {unknown:?}");
    assert!(unknown.len() < 20, "{unknown:?}");
}

/// Whether a chart's functions are in modules.
fn elsewhere(chart: &Chart) -> bool {
    parse::built_in().any(|draft| draft.elsewhere && draft.chart.name == chart.name)
}

/// Charts and functions of all written calls, but for those of modules.
fn written_calls() -> BTreeSet<(String, String)> {
    let drafts = parse::built_in().filter(|draft| !draft.elsewhere);
    drafts
        .flat_map(|draft| {
            let name = draft.chart.name;
            draft.rules.into_iter().map(move |rule| (name.clone(), rule.function))
        })
        .collect()
}

#[test]
#[ignore = "needs kernel images: set GUARDRAIL_TEST_KERNELS"]
fn locks_are_known_in_every_kernel() {
    for image in common::images() {
        let release = image.release();
        let table = SummaryTable::for_image(&image);
        let ops = |name: &str| -> Vec<SyncOp> {
            let row = table.row(name).unwrap_or_else(|| panic!("{release} lacks {name}"));
            let op = |effect: &Effect| match effect {
                Effect::Sync(op) => Some(op.clone()),
                _ => None,
            };
            row.summary.effects.iter().filter_map(op).collect()
        };
        for (lock, unlock) in [
            ("_raw_spin_lock_irqsave", "_raw_spin_unlock_irqrestore"),
            ("_raw_spin_lock_bh", "_raw_spin_unlock_bh"),
            ("_raw_write_lock_irq", "_raw_write_unlock_irq"),
            ("mutex_lock", "mutex_unlock"),
            ("down_write", "up_write"),
            ("rtnl_lock", "__rtnl_unlock"),
            ("lock_sock_nested", "release_sock"),
        ] {
            let (Some(SyncOp::Lock { kind, key, .. }), Some(SyncOp::Unlock { kind: end, key: given, .. })) =
                (ops(lock).pop(), ops(unlock).pop())
            else {
                panic!("{release}: {lock}, {unlock}");
            };
            assert_eq!((kind, key), (end, given), "{release}: {lock}");
        }
        assert!(table.row("rtnl_lock").unwrap().everywhere, "{release}");
        // Flags decide under each of the allocator's names.
        let allocator = ["__kmalloc", "__kmalloc_noprof"].into_iter().find(|name| table.row(name).is_some());
        assert_eq!(ops(allocator.unwrap()), [SyncOp::Sleeps { gfp: Some(1) }], "{release}");
        let hold = ops("dev_hard_start_xmit").remove(0);
        let SyncOp::Hold { kind: LockKind::Spin, key: Key::Arg { arg: 2, offset } } = hold else {
            panic!("{release}: {hold:?}");
        };
        assert!(offset > 0, "{release}");
    }
}

/// How many effects the tables of a kind state, by function.
fn written_effects(kind: Kind) -> BTreeMap<&'static str, usize> {
    let mut written = BTreeMap::new();
    // A seventh parameter is on the stack, where no effect reaches it.
    for row in kind.rows().filter(|row| row.params.len() <= 6) {
        let count =
            row.effects.iter().filter(|effect| !matches!(effect.verb(), "nothing" | "everywhere")).count();
        written.extend(row.names.iter().map(|name| (*name, count)));
    }
    written
}
