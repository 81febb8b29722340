//! Tests of what kernel functions format.

use super::guest::*;

/// mov rsi, [rdi]
const LOAD8: &[u8] = &[0x48, 0x8b, 0x37];
/// mov esi, [rdi]
const LOAD4: &[u8] = &[0x8b, 0x37];
/// mov dword [rdi], 1
const WRITE4: &[u8] = &[0xc7, 0x07, 1, 0, 0, 0];

/// A guest whose module has these constants, and which has 64 bytes of kmalloc.
fn with(texts: &[u8]) -> Guest {
    let mut g = Guest::with(kernel().texts(texts), &["dmcheck"]);
    g.enter();
    g.hooked(F, "kmalloc", &[64, GFP_KERNEL], HEAP);
    g
}

/// What is found where the driver prints 8 bytes of which the first `written` were written, by a format at `at`.
fn printed_at(at: u64, texts: &[u8], written: u8) -> Vec<String> {
    let mut g = with(texts);
    match written {
        0 => {}
        1 => _ = g.block(F + 5, WRITE1).store(0, HEAP, 1),
        _ => _ = g.block(F + 5, WRITE4).store(0, HEAP, 4),
    }
    g.block(F + 11, LOAD8).load(0, HEAP, 8);
    g.called(F + 14, "_printk", &[at, 0]);
    g.block(F + 19, &[0x90]);
    g.found()
}

fn printed(format: &str, written: u8) -> Vec<String> {
    printed_at(TEXTS, &[format.as_bytes(), &[0]].concat(), written)
}

#[test]
fn a_number_that_nobody_wrote() {
    let mut g = with(b"\x013drv: %d\n\0");
    g.block(F + 5, LOAD4).load(0, HEAP + 8, 4);
    g.called(F + 7, "_printk", &[TEXTS, 0]);
    let report = g.finish();
    let finding = &report.findings[0];
    assert_eq!(
        (finding.kind.as_str(), finding.offset, finding.message.as_str()),
        ("uninit-branch", 7, "uninitialized value of 4 bytes given to _printk for %d")
    );
    assert_eq!(finding.origin.as_ref().unwrap().description, "a 64-byte slab object");
    assert_eq!(report.findings.len(), 1);
}

#[test]
fn only_the_bytes_count_that_are_formatted() {
    for (format, written, findings) in [
        ("%d", 4, 0),
        ("%ld", 4, 1),
        ("%zu", 4, 1),
        ("%u", 1, 1),
        ("%hd", 1, 1),
        ("%hhx", 1, 0),
        ("%c", 1, 0),
        ("%c", 0, 1),
        ("%*d", 4, 0),
        ("%.*s", 1, 1),
        ("100%%", 0, 0),
    ] {
        let found = printed(format, written);
        assert_eq!(found.len(), findings, "{format}, {written} bytes written: {found:?}");
    }
}

#[test]
fn an_address_must_be_defined_and_what_it_leads_to_is_not_judged() {
    for format in ["%s", "%pM"] {
        let conversion = &format[..2];
        assert_eq!(
            printed(format, 4),
            [format!("uninit-address at f+0xe: uninitialized pointer given to _printk for {conversion}")]
        );
        let mut g = with(&[format.as_bytes(), &[0]].concat());
        g.called(F + 5, "_printk", &[TEXTS, HEAP]);
        g.block(F + 10, &[0x90]);
        assert_eq!(g.found(), [""; 0]);
    }
}

#[test]
fn one_finding_for_a_call() {
    assert_eq!(printed("%d %d", 0).len(), 1);
    // mov rsi, [rdi]; mov rdx, rsi
    let mut g = with(b"%d %s\0");
    g.block(F + 5, &[0x48, 0x8b, 0x37, 0x48, 0x89, 0xf2]).load(0, HEAP, 8);
    g.called(F + 11, "_printk", &[TEXTS, 0]);
    g.block(F + 16, &[0x90]);
    let found = g.found();
    assert!(found.len() == 1 && found[0].starts_with("uninit-branch"), "{found:?}");
}

#[test]
fn a_format_that_is_not_known_says_nothing() {
    // Not in the module, in its data, in its constants but without an end near by.
    let long = [&b"%d"[..], &[b'x'; 1022], &[0]].concat();
    for (at, texts) in [(HEAP, &b"%d\0"[..]), (SLOTS, &b"%d\0"[..]), (TEXTS, &b"%d"[..]), (TEXTS, &long[..])]
    {
        assert_eq!(printed_at(at, texts, 0), [""; 0]);
    }
    assert_eq!(printed_at(TEXTS, &[&b"%d"[..], &[b'x'; 1021], &[0]].concat(), 0).len(), 1);
    assert_eq!(printed_at(TEXTS + 4, b"%s\n\0%ld\0", 4).len(), 1);
}

#[test]
fn arguments_begin_behind_the_format() {
    for (format, findings) in [("%d", 1), ("%%", 0)] {
        let mut g = with(&[format.as_bytes(), &[0]].concat());
        // mov ecx, [rdi]
        g.block(F + 5, &[0x8b, 0x0f]).load(0, HEAP, 4);
        g.called(F + 7, "snprintf", &[HEAP, 64, TEXTS, 0]);
        g.block(F + 12, &[0x90]);
        assert_eq!(g.found().len(), findings, "{format}");
    }
}

#[test]
fn what_does_not_fit_into_registers_is_on_the_stack() {
    for (format, findings) in
        [("%d%d%d%d%d%d", 0), ("%d%d%d%d%d%ld", 1), ("%d%d%d%d%d%d%hhx", 1), ("%d%d%d%d%d%d%%", 0)]
    {
        let mut g = Guest::with(kernel().texts(&[format.as_bytes(), &[0]].concat()), &["dmcheck"]);
        g.enter();
        // sub rsp, 0x10; mov dword [rsp], 1
        g.block(F, &[0x48, 0x83, 0xec, 0x10, 0xc7, 0x04, 0x24, 1, 0, 0, 0]).store(1, STACK - 0x10, 4);
        g.send(0);
        g.rsp -= 0x10;
        g.called(F + 11, "_printk", &[TEXTS, 1, 2, 3, 4, 5]);
        g.block(F + 16, &[0x90]);
        let found = g.found();
        assert_eq!(found.len(), findings, "{format}: {found:?}");
    }
}

#[test]
fn no_more_than_sixteen_arguments_are_judged() {
    for (count, findings) in [(15, 1), (16, 0)] {
        let format = [&b"%%"[..], &b"%c".repeat(count)[..], &b"%d\0"[..]].concat();
        let mut g = Guest::with(kernel().texts(&format), &["dmcheck"]);
        g.enter();
        // sub rsp, 0x60; the first slots are written: mov qword [rsp+8*i], 1
        let mut code = vec![0x48, 0x83, 0xec, 0x60];
        let slots = (0..count as u8 - 5).map(|slot| [0x48, 0xc7, 0x44, 0x24, 8 * slot, 1, 0, 0, 0]);
        code.extend(slots.flatten());
        g.block(F, &code);
        for slot in 0..count as u16 - 5 {
            g.store(1 + slot, STACK - 0x60 + 8 * u64::from(slot), 8);
        }
        g.send(0);
        g.rsp -= 0x60;
        g.called(F + code.len() as u64, "_printk", &[TEXTS]);
        g.block(F + code.len() as u64 + 5, &[0x90]);
        assert_eq!(g.found().len(), findings, "{count}");
    }
}
