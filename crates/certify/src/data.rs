//! The read-only data of a guarded module: actions and descriptions of entries.

use crate::elf::{Elf, Place, Target};
use guardrail_abi::{self as abi, layout, symbol};
use rustc_hash::FxHashSet;
use std::ops::Range;

/// The name of the section.
pub const SECTION: &str = ".rodata.guardrail";

/// The section.
#[derive(Debug, Default)]
pub struct Data<'a> {
    /// Its number; that of no section if the module has none.
    pub section: u32,
    elf: Option<&'a Elf>,
}

/// Names of the runtime's functions by the number of their action.
const ACTIONS: [(u8, &str); 22] = [
    (abi::ACTION_GRANT, symbol::DO_GRANT),
    (abi::ACTION_REVOKE, symbol::DO_REVOKE),
    (abi::ACTION_REQUIRE_WRITE, symbol::DO_REQUIRE_WRITE),
    (abi::ACTION_OWN, symbol::DO_OWN),
    (abi::ACTION_DISOWN, symbol::DO_DISOWN),
    (abi::ACTION_GRANT_FIELDS, symbol::DO_GRANT_FIELDS),
    (abi::ACTION_REVOKE_FIELDS, symbol::DO_REVOKE_FIELDS),
    (abi::ACTION_CREATE_OBJECT, symbol::DO_CREATE_OBJECT),
    (abi::ACTION_REQUIRE_OBJECT, symbol::DO_REQUIRE_OBJECT),
    (abi::ACTION_MOVE_OBJECT, symbol::DO_MOVE_OBJECT),
    (abi::ACTION_FORGET_OBJECT, symbol::DO_FORGET_OBJECT),
    (abi::ACTION_REQUIRE_CALL, symbol::DO_REQUIRE_CALL),
    (abi::ACTION_REQUIRE_CALLS, symbol::DO_REQUIRE_CALLS),
    (abi::ACTION_EXIT, symbol::DO_EXIT),
    (abi::ACTION_DESTROY_OBJECT, symbol::DO_DESTROY_OBJECT),
    (abi::ACTION_REGISTERS, symbol::DO_REGISTERS),
    (abi::ACTION_UNREGISTERS, symbol::DO_UNREGISTERS),
    (abi::ACTION_DEFER, symbol::DO_DEFER),
    (abi::ACTION_REVERSE, symbol::DO_REVERSE),
    (abi::ACTION_TOUCH, symbol::DO_TOUCH),
    (abi::ACTION_SAVE, symbol::DO_SAVE),
    (abi::ACTION_IRREVOCABLE, symbol::DO_IRREVOCABLE),
];

/// What the names of actions that need the kernel's headers begin with.
fn custom(name: &str) -> bool {
    name.strip_prefix(abi::PREFIX).is_some_and(|rest| rest.starts_with("custom_"))
}

/// Whether a function of the runtime performs an action.
pub fn is_action(name: &str) -> bool {
    custom(name) || ACTIONS.iter().any(|(_, function)| *function == name)
}

impl<'a> Data<'a> {
    /// Finds the section.
    pub fn of(elf: &'a Elf) -> Data<'a> {
        match elf.section(SECTION) {
            Some(section) => Data { section, elf: Some(elf) },
            None => Data { section: u32::MAX, elf: None },
        }
    }

    fn bytes(&self, row: u32, len: usize) -> Option<&'a [u8]> {
        let elf = self.elf?;
        elf.sections.get(self.section as usize)?.data.get(row as usize..(row as usize).checked_add(len)?)
    }

    fn word(&self, row: u32, at: usize) -> u32 {
        let bytes = self.bytes(row + at as u32, 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_le_bytes)
    }

    fn pointer(&self, at: u64) -> Option<Place> {
        let section = self.elf?.sections.get(self.section as usize)?;
        section.place_at(at)
    }

    fn text(&self, row: u32, at: usize) -> Option<&'a str> {
        let (section, at) = self.pointer(u64::from(row) + at as u64)?;
        let bytes = self.elf?.sections.get(section as usize)?.data.get(at as usize..)?;
        std::str::from_utf8(bytes.split(|byte| *byte == 0).next()?).ok()
    }

    /// The function that an action belongs to.
    pub fn function(&self, row: u32) -> Option<&'a str> {
        self.text(row, layout::action::FUNCTION)
    }

    /// The function that an entry belongs to.
    pub fn entered(&self, row: u32) -> Option<&'a str> {
        self.text(row, layout::entry::FUNCTION)
    }

    /// Whether an action does nothing outside of transactions, where it does not check rights.
    pub fn transacts(&self, row: u32) -> bool {
        let kind = self.bytes(row, layout::action::BYTES).map(|bytes| bytes[layout::action::KIND]);
        kind.is_some_and(|kind| (abi::ACTION_DEFER..=abi::ACTION_SAVE).contains(&kind))
    }

    /// Whether an action is left out where the module calls the function itself.
    pub fn of_entry(&self, row: u32) -> bool {
        let bytes = self.bytes(row, layout::action::BYTES);
        bytes.is_some_and(|bytes| bytes[layout::action::WHEN] & abi::OF_ENTRY != 0)
    }

    /// Whether the row is one that a function of the runtime performs for a domain.
    pub fn action(&self, row: u32, name: &str, domain: u8) -> Result<(), String> {
        use layout::action as column;
        let Some(bytes) = self.bytes(row, column::BYTES) else {
            return Err(format!("{name} gets what is no action"));
        };
        let kind = bytes[column::KIND];
        let good = match ACTIONS.iter().find(|action| action.1 == name) {
            Some((number, _)) => *number == kind,
            None => kind == abi::ACTION_CUSTOM && custom(name),
        };
        if !good {
            return Err(format!("{name} gets an action of another kind"));
        }
        let Some(pointers) = self.pointers(row) else {
            return Err(format!("{name} gets an action with parts that are elsewhere"));
        };
        self.whole(row, column::BYTES, &pointers)?;
        if bytes[column::DOMAIN] != domain {
            return Err(format!("{name} gets an action of domain {}", bytes[column::DOMAIN]));
        }
        match self.function(row) {
            Some(_) => Ok(()),
            None => Err(format!("{name} gets an action that belongs to no function")),
        }
    }

    /// Whether the row describes an entry of a domain.
    pub fn entry(&self, row: u32, domain: u8) -> Result<(), String> {
        use layout::entry as column;
        if self.bytes(row, column::BYTES).is_none() || self.text(row, column::FUNCTION).is_none() {
            return Err("an entry is noted without its description".into());
        }
        self.whole(row, column::BYTES, &[column::FUNCTION])?;
        match self.word(row, column::DOMAIN) {
            own if own == u32::from(domain) => Ok(()),
            other => Err(format!("an entry is noted for domain {other}")),
        }
    }

    /// The columns of an action that are pointers; `None` if what they lead to is not in the section, or has
    /// pointers where numbers belong.
    fn pointers(&self, row: u32) -> Option<Vec<usize>> {
        use layout::{action as column, field, value};
        let mut pointers = vec![column::FUNCTION, column::INVERSE, column::TARGET];
        for at in [column::POINTER, column::SIZE] {
            if self.terms(u64::from(row) + at as u64)? {
                pointers.push(at + value::TERMS);
            }
        }
        let list = |at: usize| {
            let (section, place) = self.pointer(u64::from(row) + at as u64)?;
            (section == self.section).then_some(place)
        };
        let (fields, more) = (self.word(row, column::N_FIELDS), self.word(row, column::N_MORE));
        if fields > 0 {
            self.numbers(list(column::FIELDS)?, u64::from(fields), field::BYTES)?;
            pointers.push(column::FIELDS);
        }
        if more > 0 {
            let start = list(column::MORE)?;
            for at in (0..u64::from(more)).map(|number| start.checked_add(number * value::BYTES as u64)) {
                let at = at?;
                // The terms of a value are a pointer, and the rest are numbers.
                let numbers = if self.terms(at)? { value::TERMS } else { value::BYTES };
                self.numbers(at, 1, numbers)?;
            }
            pointers.push(column::MORE);
        }
        Some(pointers)
    }

    /// Whether a value has terms, which are numbers; `None` if they are elsewhere.
    fn terms(&self, at: u64) -> Option<bool> {
        use layout::{term, value};
        let row = u32::try_from(at).ok()?;
        let bytes = self.bytes(row, value::BYTES)?;
        if bytes[value::KIND] != abi::VALUE_TERMS {
            return Some(false);
        }
        let count = u16::from_le_bytes([bytes[value::N_TERMS], bytes[value::N_TERMS + 1]]);
        let (section, place) = self.pointer(at + value::TERMS as u64)?;
        self.numbers(place, u64::from(count), term::BYTES)?;
        (section == self.section).then_some(true)
    }

    /// So many rows of numbers, which no relocation changes, lie in the section.
    fn numbers(&self, at: u64, count: u64, size: usize) -> Option<()> {
        let section = self.elf?.sections.get(self.section as usize)?;
        let end = count.checked_mul(size as u64)?.checked_add(at)?;
        let changed = section
            .relocs_in(at.saturating_sub(7), end)
            .iter()
            .any(|reloc| reloc.offset + reloc.width().max(1) > at);
        (end <= section.data.len() as u64 && !changed).then_some(())
    }

    /// Relocations fill pointers of a row alone, so that its numbers are what the file has.
    fn whole(&self, row: u32, bytes: usize, pointers: &[usize]) -> Result<(), String> {
        let section = self.elf.and_then(|elf| elf.sections.get(self.section as usize));
        let Some(section) = section.filter(|section| !section.write()) else {
            return Err(format!("{SECTION} can be written"));
        };
        let start = u64::from(row);
        let good = |reloc: &crate::elf::Reloc| {
            reloc.width() == 8
                && !reloc.relative()
                && pointers.contains(&(reloc.offset.wrapping_sub(start) as usize))
        };
        match section
            .relocs_in(start.saturating_sub(7), start + bytes as u64)
            .iter()
            .all(|reloc| good(reloc) || reloc.offset + reloc.width().max(1) <= start)
        {
            true => Ok(()),
            false => Err(format!("a relocation changes a number of {SECTION}+{row:#x}")),
        }
    }

    /// The argument that an action requires to be a packet, if that is all.
    pub fn packet(&self, row: u32) -> Option<usize> {
        use layout::{action, value};
        let bytes = self.bytes(row, action::BYTES)?;
        let from = self.word(row, action::FROM);
        let only = bytes[action::KIND] == abi::ACTION_REQUIRE_OBJECT
            && bytes[action::WHEN] == abi::ALWAYS
            && self.word(row, action::TYPE) == abi::TYPE_SKB
            && (from == 0 || from == abi::ANY_STATE)
            && bytes[action::POINTER + value::KIND] == abi::VALUE_WORD;
        only.then(|| usize::from(bytes[action::POINTER + value::WORD]))
    }

    /// Where the values of an action behind its first two stand.
    fn more(&self, row: u32) -> Option<Range<u64>> {
        use layout::{action as column, value};
        let count = u64::from(self.word(row, column::N_MORE));
        let (section, start) = self.pointer(u64::from(row) + column::MORE as u64)?;
        let end = start.checked_add(count.checked_mul(value::BYTES as u64)?)?;
        (section == self.section).then_some(start..end)
    }

    /// Pointers in the section that belong to no row that code uses, by the function that they name.
    pub fn unused(&self, actions: &FxHashSet<u32>, entries: &FxHashSet<u32>) -> Vec<(u64, String)> {
        let Some(section) = self.elf.and_then(|elf| elf.sections.get(self.section as usize)) else {
            return Vec::new();
        };
        let within = |at: u64, row: usize, rows: &FxHashSet<u32>| {
            (0..row as u64).step_by(4).any(|back| at >= back && rows.contains(&((at - back) as u32)))
        };
        // The values of a row behind its first two stand elsewhere.
        let more: Vec<Range<u64>> = actions.iter().filter_map(|row| self.more(*row)).collect();
        let unused = section.relocs.iter().filter(|reloc| {
            !within(reloc.offset, layout::action::BYTES, actions)
                && !more.iter().any(|values| values.contains(&reloc.offset))
                && !within(reloc.offset, layout::entry::BYTES, entries)
        });
        unused
            .map(|reloc| {
                let name = match reloc.target {
                    Target::In(own) if own == self.section => self.at(reloc.addend as u64),
                    _ => String::new(),
                };
                (reloc.offset, name)
            })
            .collect()
    }

    fn at(&self, at: u64) -> String {
        let bytes = u32::try_from(at)
            .ok()
            .and_then(|at| self.elf?.sections[self.section as usize].data.get(at as usize..));
        let text = bytes.and_then(|bytes| bytes.split(|byte| *byte == 0).next());
        text.map(|text| String::from_utf8_lossy(text).into_owned()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_actions_of_the_interface_are_known() {
        let kinds = abi::IN_C
            .iter()
            .filter_map(|(name, value)| Some((name.strip_prefix("GUARDRAIL_ACTION_")?, *value)));
        for (name, value) in kinds {
            let function = format!("{}do_{}", abi::PREFIX, name.to_lowercase());
            let known = ACTIONS.iter().any(|(kind, own)| u64::from(*kind) == value && *own == function);
            assert!(known || name == "CUSTOM", "{name}");
        }
    }
}
