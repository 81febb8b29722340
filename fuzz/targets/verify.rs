//! A guarded module, damaged: `guardrail guard --check` certifies it or names faults.
//!
//! Input: how the module's own code and tables are damaged before it is guarded and after. With no damage, it is
//! certified. With the first byte all ones, the rest is the file.

#![no_main]

use guardrail_certify::certify;
use guardrail_rewrite::Object;
use guardrail_rewrite::object::Content;
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use made::{guard, module};
use std::sync::OnceLock;

#[path = "../../crates/certify/tests/made/mod.rs"]
mod made;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let [0xff, rest @ ..] = data {
        let _ = certify("input", rest);
        return;
    }
    let mut input = Unstructured::new(data);
    static WHOLE: OnceLock<Object> = OnceLock::new();
    let whole = WHOLE.get_or_init(|| {
        let file = guard(&module()).expect("the module can be guarded");
        let certificate = certify("whole", &file).expect("it is a guarded module");
        assert!(certificate.faults.is_empty(), "{:#?}", certificate.faults);
        Object::read("whole", &file).expect("it can be read")
    });
    let _ = damaged(&mut input, whole);
});

/// Damages the module, before it is guarded or after.
fn damaged(input: &mut Unstructured<'_>, whole: &Object) -> Result<()> {
    let before = input.arbitrary::<u8>()? & 3 == 0;
    let mut object = if before { module() } else { whole.clone() };
    while !input.is_empty() {
        damage(input, &mut object)?;
        if input.ratio(1u8, 4u8)? {
            break;
        }
    }
    let file = if before { guard(&object) } else { object.write().ok() };
    if let Some(mut file) = file {
        let _ = certify("input", &file);
        // The rest of the input damages the file as such.
        while !input.is_empty() {
            let [low, high, to] = input.arbitrary::<[u8; 3]>()?;
            let at = usize::from(u16::from_le_bytes([low, high])) % file.len();
            file[at] = to;
        }
        let _ = certify("input", &file);
    }
    Ok(())
}

/// Changes one thing of an object.
fn damage(input: &mut Unstructured<'_>, object: &mut Object) -> Result<()> {
    let [what, which, low, high, value] = input.arbitrary::<[u8; 5]>()?;
    let number = usize::from(which) % object.sections.len();
    let symbols = object.symbols.len();
    let at = usize::from(u16::from_le_bytes([low, high]));
    let section = &mut object.sections[number];
    let (relocs, size) = (section.relocs.len(), section.bytes().len());
    match (what % 12, &mut section.content) {
        (0..=3, Content::Bytes(bytes)) if size > 0 => bytes[at % size] = value,
        (4, Content::Bytes(bytes)) if size > 0 => bytes[at % size] ^= 1 << (value % 8),
        (5, Content::Bytes(bytes)) if size > 0 => bytes.truncate(at % size),
        (6, _) if relocs > 0 => section.relocs[at % relocs].symbol = usize::from(value) % symbols,
        (7, _) if relocs > 0 => section.relocs[at % relocs].addend += i64::from(value as i8),
        (8, _) if relocs > 0 => _ = section.relocs.remove(at % relocs),
        (9, _) if relocs > 0 => section.relocs[at % relocs].kind = u32::from(value) % 48,
        (10, _) => section.flags ^= 1 << (value % 12),
        (11, _) => {
            let symbol = &mut object.symbols[at % symbols];
            symbol.value = symbol.value.wrapping_add(i64::from(value as i8) as u64);
            symbol.size = symbol.size.wrapping_add(u64::from(value >> 6));
        }
        _ => {}
    }
    Ok(())
}
