//! Modules that are not watched: only their names are known.

use super::guest::*;

/// A use after free whose object was freed by `core`, on behalf of the driver.
fn freed_by_core(mut g: Guest) -> Vec<String> {
    g.hooked(F, "kmalloc", &[64, GFP_KERNEL], HEAP);
    g.block(F + 5, WRITE1).store(0, HEAP, 1);
    g.call_at(F + 7, CORE, &[HEAP]);
    g.hook("kfree", STACK - 0x40, CORE + 0x24, &[HEAP]);
    g.hook_return("kfree", STACK - 0x40, 0);
    g.back(0);
    g.block(F + 12, READ4).load(0, HEAP + 8, 4);
    let report = g.finish();
    assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
    let finding = &report.findings[0];
    assert_eq!((finding.kind.as_str(), finding.module.as_str()), ("use-after-free", "drv"));
    assert_eq!(report.statistics.modules, ["drv"]);
    let freed = finding.object.as_ref().unwrap().freed.as_ref().unwrap();
    let show = |f: &guardrail_finding::Frame| {
        let other = if f.other { " of another" } else { "" };
        format!("{}+{:#x} {}{other}", f.function, f.offset, f.module.as_deref().unwrap_or("-"))
    };
    freed.stack.iter().map(show).collect()
}

#[test]
fn functions_of_other_modules_have_names() {
    let mut g = Guest::new();
    g.load_other(b"core\0\0\0\0");
    let expected = ["kfree+0x0 -", "core_submit+0x24 core of another", "f+0xc drv", "caller+0x9 -"];
    assert_eq!(freed_by_core(g), expected);
}

#[test]
fn of_a_module_that_is_not_at_hand_the_name_is_known() {
    let mut g = Guest::new();
    g.load_other(b"what\0\0\0\0");
    assert_eq!(freed_by_core(g)[1], "?+0x0 what of another");
}

#[test]
fn the_last_module_at_an_address_counts() {
    let mut g = Guest::new();
    g.load_other(b"core\0\0\0\0");
    g.unload_other();
    g.load_other(b"what\0\0\0\0");
    assert_eq!(freed_by_core(g)[1], "?+0x0 what of another");
    let mut g = Guest::new();
    g.load_other(b"core\0\0\0\0");
    g.unload_other();
    assert_eq!(freed_by_core(g)[1], "core_submit+0x24 core of another");
}

#[test]
fn functions_of_other_modules_may_keep_and_write_what_they_are_given() {
    // `up…` keeps nothing where it is the kernel's function.
    for target in [CORE, CORE + 0x100] {
        let mut g = Guest::new();
        g.load_other(b"core\0\0\0\0");
        g.hooked(F, "kmalloc", &[64, GFP_KERNEL], HEAP);
        g.called_at(F + 5, target, &[HEAP]);
        g.block(F + 10, READ_AND_BRANCH).load(0, HEAP + 8, 4);
        g.unload();
        assert_eq!(g.found(), [""; 0]);
    }
}
