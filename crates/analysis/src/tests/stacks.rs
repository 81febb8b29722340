//! Stacks of the kernel above the driver, in findings.

use super::guest::*;
use guardrail_finding::{Finding, Frame};

fn names(stack: &[Frame]) -> Vec<String> {
    let name = |frame: &Frame| {
        let mark = if frame.outer { "~" } else { "" };
        let switch = if frame.switched { "| " } else { "" };
        format!("{switch}{mark}{}+{:#x}", frame.function, frame.offset)
    };
    stack.iter().map(name).collect()
}

/// Frees an object and reads it, in functions that the kernel calls with these stacks above.
fn read_after_free(above: &[&[(u64, bool, bool)]]) -> Vec<Finding> {
    let mut g = Guest::with(kernel(), &["dmcheck"]);
    g.enter_below(1, above[0]);
    g.hooked(F, "kmalloc", &[64, GFP_KERNEL], HEAP);
    g.block(F + 5, WRITE1).store(0, HEAP, 1);
    g.hooked(F + 7, "kfree", &[HEAP], 0);
    for (number, &frames) in (2..).zip(above) {
        g.block(F + 12, &[0x90]);
        g.enter_below(number, frames);
        g.block(F + 13, READ4).load(0, HEAP, 4);
    }
    g.finish().findings
}

#[test]
fn a_finding_has_the_whole_stack_and_the_fingerprint_of_its_near_part() {
    let kernel = kernel();
    let [caller, work, loops] =
        [("caller", 9), ("memcpy", 3), ("scribble", 1)].map(|(name, offset)| kernel.address(name) + offset);
    // A second path, through code that an interrupt of the driver itself has hit.
    let one = [(caller, false, false), (work, false, false)];
    let two = [(caller, false, false), (loops, false, false), (F + 1, true, true)];
    let short = read_after_free(&[&[(caller, false, false)]]);
    let found = read_after_free(&[&one, &two]);
    assert_eq!((found.len(), found[0].count), (1, 2));
    assert_eq!(names(&found[0].stack), ["f+0xd", "caller+0x9", "~memcpy+0x3"]);
    let object = found[0].object.as_ref().unwrap();
    let allocated = object.allocated.as_ref().unwrap();
    assert_eq!(names(&allocated.stack), ["kmalloc+0x0", "f+0x5", "caller+0x9", "~memcpy+0x3"]);
    assert_eq!(names(&short[0].stack), ["f+0xd", "caller+0x9"]);

    let interrupted = read_after_free(&[&two]);
    assert_eq!(names(&interrupted[0].stack), ["f+0xd", "caller+0x9", "~scribble+0x1", "| ~f+0x1"]);
    assert!(found[0].id == short[0].id && interrupted[0].id == short[0].id);
}

#[test]
fn a_number_without_a_definition_is_no_stack() {
    let mut g = Guest::with(kernel(), &["dmcheck"]);
    // The numbers of a ring are dense.
    let caller = g.function("caller") + 9;
    g.enter_below(7, &[(caller, false, false), (caller + 1, false, false)]);
    g.hooked(F, "kmalloc", &[64, GFP_KERNEL], HEAP);
    g.hooked(F + 5, "kfree", &[HEAP], 0);
    g.block(F + 10, READ4).load(0, HEAP, 4);
    let outcome = g.finish();
    assert_eq!((outcome.statistics.damaged_segments, outcome.statistics.stacks_not_kept), (1, 1));
    assert_eq!(names(&outcome.findings[0].stack), ["f+0xa", "caller+0x9"]);
}

#[test]
fn an_interrupt_where_the_stack_pointer_is_unknown_leaves_nothing_on_the_stack() {
    let caller = kernel().address("caller") + 9;
    for goes_on in [true, false] {
        let mut g = Guest::with(kernel(), &["dmcheck"]);
        g.enter();
        // sub rsp, rax; nop
        g.block(F + 0x40, &[0x48, 0x29, 0xc4, 0x90]);
        g.interrupt(F + 0x43);
        if goes_on {
            g.rsp = STACK - 0x100;
            g.retry();
            g.block(F + 0x43, &[0x90]);
            // leave; the return follows
            g.block(F + 0x44, &[0xc9]).load(0, STACK - 8, 8);
            g.rsp = STACK;
            g.leave_at(F + 0x45);
        }
        g.rsp = STACK;
        g.enter_below(1, &[(caller, false, false)]);
        g.hooked(F, "kmalloc", &[64, GFP_KERNEL], HEAP);
        g.hooked(F + 5, "kfree", &[HEAP], 0);
        g.block(F + 10, READ4).load(0, HEAP, 4);
        let found = g.finish().findings;
        assert_eq!(names(&found[0].stack), ["f+0xa", "caller+0x9"], "{goes_on}");
    }
}
