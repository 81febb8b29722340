//! `slots VMLINUZ DRIVER [MODULE…]` prints how many slots of the rights table the fields that a driver is
//! granted fill. It also prints how many of these slots they fill only in part, for several sizes of slots.
//! The modules are those that the driver needs.

mod driver;

use guardrail_rewrite::border::{Action, Field, Step};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a slot, one column of the output each.
const SIZES: [u32; 3] = [8, 16, 32];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let border = driver::border("slots")?.interposition;
    let imports = border.imports.values().flat_map(|call| call.before.iter().chain(&call.after));
    let entries = border.entries.values().flat_map(|call| call.before.iter().chain(&call.after));
    let lists: BTreeSet<&[Field]> = imports.chain(entries).filter_map(fields).collect();
    println!("{} lists of fields", lists.len());
    for size in SIZES {
        let (mut whole, mut part) = (0, 0);
        for list in &lists {
            for bytes in slots(list, size).values() {
                *(if *bytes == size { &mut whole } else { &mut part }) += 1;
            }
        }
        println!("slots of {size}: {whole} are granted whole, and of {part} a part");
    }
    Ok(())
}

fn fields(step: &Step) -> Option<&[Field]> {
    match &step.action {
        Action::GrantFields { fields, .. } => Some(fields),
        _ => None,
    }
}

/// How many bytes of each slot are granted, where the structure begins with a slot.
fn slots(list: &[Field], size: u32) -> BTreeMap<u32, u32> {
    let mut slots = BTreeMap::new();
    let bytes: BTreeSet<u32> =
        list.iter().flat_map(|field| field.offset..field.offset + field.size).collect();
    for byte in bytes {
        *slots.entry(byte / size).or_default() += 1;
    }
    slots
}
